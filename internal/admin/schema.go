package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Schema is a way to name an outbox table's columns.
type Schema string

// The schemas: the column names of Debezium's Outbox Event Router, and those
// of common tutorials.
const (
	SchemaDebezium Schema = "debezium"
	SchemaSnake    Schema = "snake"
)

// ParseSchema reads a Schema's name; "" is SchemaDebezium.
func ParseSchema(name string) (Schema, error) {
	switch s := Schema(name); s {
	case "":
		return SchemaDebezium, nil
	case SchemaDebezium, SchemaSnake:
		return s, nil
	}
	return "", failure.Configf("write --schema debezium or --schema snake", "unknown schema %q", name)
}

// column is a single line of a CREATE TABLE.
type column struct{ name, definition string }

// columns lists an outbox table's columns: the configured names, the schema's
// names for the rest, and created_at for the deletion of old rows.
func (s Schema) columns(cfg *config.Config) []column {
	ev := cfg.Event
	payload := "jsonb NOT NULL"
	if ev.TombstoneOnEmptyPayload {
		payload = "jsonb"
	}
	names := [3]string{"aggregatetype", "aggregateid", "type"}
	if s == SchemaSnake {
		names = [3]string{"aggregate_type", "aggregate_id", "event_type"}
	}

	cols := []column{
		{cmp.Or(ev.ID, "id"), "uuid PRIMARY KEY DEFAULT gen_random_uuid()"},
		{cmp.Or(cfg.Route.By, names[0]), "varchar(255) NOT NULL"},
		{cmp.Or(ev.Key, names[1]), "varchar(255) NOT NULL"},
		{cmp.Or(ev.Type, names[2]), "varchar(255) NOT NULL"},
		{cmp.Or(ev.Payload, "payload"), payload},
		{headersColumn(ev.Headers), "jsonb"},
		{ev.SchemaVersion, "integer"},
		{ev.Tracing, "text"},
		{ev.Timestamp, "timestamptz NOT NULL DEFAULT now()"},
	}
	cols = append(cols, additionalColumns(ev.Additional)...)
	cols = append(cols, column{"created_at", "timestamptz NOT NULL DEFAULT now()"})
	switch {
	case cfg.Source.Mode == config.ModePoll:
		cols = append(cols, pollColumns(cfg)...)
	case s == SchemaSnake:
		cols = append(cols,
			column{"published", "boolean NOT NULL DEFAULT false"},
			column{"published_at", "timestamptz"})
	}
	return distinct(cols)
}

// headersColumn is the name of the headers column, "" where there is to be none.
func headersColumn(option string) string {
	if option == transform.HeadersNone {
		return ""
	}
	return cmp.Or(option, "headers")
}

// additionalColumns reads "column:placement[:alias]".
func additionalColumns(fields []string) []column {
	cols := make([]column, 0, len(fields))
	for _, f := range fields {
		name, placement, _ := strings.Cut(f, ":")
		definition := "text"
		if strings.HasPrefix(placement, "partition") {
			definition = "integer"
		}
		cols = append(cols, column{name, definition})
	}
	return cols
}

// distinct leaves out columns without a name, and repetitions of a name.
func distinct(cols []column) []column {
	seen := map[string]bool{"": true}
	return slices.DeleteFunc(cols, func(c column) bool {
		if seen[c.name] {
			return true
		}
		seen[c.name] = true
		return false
	})
}

// createTable is the DDL of an outbox table, without the closing semicolon.
func (s Schema) createTable(cfg *config.Config, table pg.Table) string {
	cols := s.columns(cfg)
	width := 0
	for _, c := range cols {
		width = max(width, len(plainIdentifier(c.name)))
	}
	lines := make([]string, len(cols))
	for i, c := range cols {
		lines[i] = fmt.Sprintf("    %-*s  %s", width, plainIdentifier(c.name), c.definition)
	}
	storage := ""
	if cfg.Source.Mode == config.ModePoll {
		storage = pollStorage
	}
	return "CREATE TABLE IF NOT EXISTS " + table.Quoted() + " (\n" + strings.Join(lines, ",\n") + "\n)" + storage
}

// unquoted are the names setup itself chooses; none is a reserved word.
var unquoted = []string{
	"id", "aggregatetype", "aggregateid", "type", "payload", "headers",
	"aggregate_type", "aggregate_id", "event_type", "created_at", "published", "published_at", poll.SequenceColumn,
}

// plainIdentifier quotes a column name unless known to need no quotes.
func plainIdentifier(name string) string {
	if slices.Contains(unquoted, name) {
		return name
	}
	return pgsql.Name(name)
}
