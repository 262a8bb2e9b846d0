package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// Table names an outbox table and its columns, each as the catalog has it:
// names are quoted, so upper case is kept. The zero value is the table of
// Schema.
type Table struct {
	// Schema is where the table is. The default is the search path's.
	Schema string
	// Name is the table's name. The default is outbox.
	Name string
	// Columns are the names of the columns; Debezium's if empty.
	Columns Columns
	// NoHeaders tells that the table has no column for headers. Events must not
	// have any then.
	NoHeaders bool
}

// Columns are the columns written. All others need a default. Their types: uuid
// or text for ID, text or varchar for AggregateType, AggregateID and Type, what
// PayloadType says for Payload, jsonb or json for Headers.
type Columns struct {
	ID            string // id
	AggregateType string // aggregatetype
	AggregateID   string // aggregateid
	Type          string // type
	Payload       string // payload
	Headers       string // headers
}

// SnakeCase are the columns of many tutorials: aggregate_type, aggregate_id,
// event_type. The connector detects them as well as Debezium's.
func SnakeCase() Columns {
	return Columns{AggregateType: "aggregate_type", AggregateID: "aggregate_id", Type: "event_type"}
}

func (t Table) withDefaults() Table {
	t.Name = cmp.Or(t.Name, "outbox")
	t.Columns = Columns{
		ID:            cmp.Or(t.Columns.ID, "id"),
		AggregateType: cmp.Or(t.Columns.AggregateType, "aggregatetype"),
		AggregateID:   cmp.Or(t.Columns.AggregateID, "aggregateid"),
		Type:          cmp.Or(t.Columns.Type, "type"),
		Payload:       cmp.Or(t.Columns.Payload, "payload"),
		Headers:       cmp.Or(t.Columns.Headers, "headers"),
	}
	return t
}

// columns lists the columns in the order of insertRows' parameters.
func (t Table) columns() []string {
	c := t.Columns
	all := []string{c.ID, c.AggregateType, c.AggregateID, c.Type, c.Payload}
	if !t.NoHeaders {
		all = append(all, c.Headers)
	}
	return all
}

// validate returns the faults of a table with the defaults.
func (t Table) validate() error {
	errs := []error{checkIdentifier("Table.Name", t.Name)}
	if t.Schema != "" {
		errs = append(errs, checkIdentifier("Table.Schema", t.Schema))
	}
	seen := map[string]bool{}
	for _, column := range t.columns() {
		errs = append(errs, checkIdentifier("Table.Columns", column))
		if seen[column] {
			errs = append(errs, fmt.Errorf("Table.Columns: %q is named twice", column))
		}
		seen[column] = true
	}
	return errors.Join(errs...)
}

// quoted is the table's name in SQL.
func (t Table) quoted() string {
	if t.Schema == "" {
		return pgsql.Name(t.Name)
	}
	return pgsql.Name(t.Schema) + "." + pgsql.Name(t.Name)
}

func checkIdentifier(option, name string) error {
	switch {
	case len(name) > pgsql.MaxName:
		return fmt.Errorf("%s: %q has more than %d bytes, which PostgreSQL would cut off", option, name, pgsql.MaxName)
	case strings.IndexByte(name, 0) >= 0 || !utf8.ValidString(name):
		return fmt.Errorf("%s: %q is not text that PostgreSQL can store", option, name)
	}
	return nil
}
