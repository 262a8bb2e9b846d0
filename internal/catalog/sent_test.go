package catalog

import (
	"slices"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Failure mode 108. ReadSent tells the columns sent by the server, as the server itself
// shows, and the remedy has it send the others.
func TestReadSentIsWhatTheServerSends(t *testing.T) {
	const (
		stored  = `CREATE TABLE outbox (id text PRIMARY KEY, payload text, type text GENERATED ALWAYS AS (lower(payload)) STORED)`
		virtual = `CREATE TABLE outbox (id text PRIMARY KEY, payload text, type text GENERATED ALWAYS AS (lower(payload)) VIRTUAL)`
		plain   = `CREATE TABLE outbox (id text PRIMARY KEY, payload text, type text)`
	)
	for name, c := range map[string]struct {
		table, publication string
		from               int // version
		unsent             []string
		mends              bool // the remedy is SQL
	}{
		"all":                        {plain, `FOR TABLE outbox`, 14, nil, false},
		"a column list":              {plain, `FOR TABLE outbox (id, payload)`, 15, []string{"type"}, true},
		"generated":                  {stored, `FOR TABLE outbox`, 14, []string{"type"}, false},
		"generated, and told to":     {stored, `FOR ALL TABLES WITH (publish_generated_columns = stored)`, 18, nil, false},
		"generated, and not told to": {stored, `FOR TABLE outbox`, 18, []string{"type"}, true},
		"generated, in a list":       {stored, `FOR TABLE outbox (id, type)`, 18, []string{"payload"}, true},
		"generated, not in a list":   {stored, `FOR TABLE outbox (id, payload)`, 18, []string{"type"}, true},
		"virtual":                    {virtual, `FOR TABLE outbox WITH (publish_generated_columns = stored)`, 18, []string{"type"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			url := pgtest.Shared(t).NewDatabase(t)
			conn := connect(t, url)
			needVersion(t, conn, c.from)
			pgtest.Execute(t, conn, c.table, `CREATE PUBLICATION p `+c.publication)
			rel, _, err := ReadSent(pgtest.Context(t), conn, outbox, "p")
			must.OK(t, err)
			var unsent []string
			for _, u := range rel.Unsent {
				unsent = append(unsent, u.Name)
			}
			if sent := columnNames(rel); !slices.Equal(unsent, c.unsent) || !slices.Equal(sent, announced(t, url)) {
				t.Fatalf("sent %v, unsent %v, want unsent %v, and the server announces %v", sent, unsent, c.unsent, announced(t, url))
			}
			if c.mends {
				pgtest.Execute(t, conn, rel.Unsent[0].Remedy)
				rel, _, err = ReadSent(pgtest.Context(t), conn, outbox, "p")
				must.OK(t, err)
				if len(rel.Unsent) > 0 || len(announced(t, url)) != 3 {
					t.Errorf("after the remedy %v is not sent, and the server announces %v", rel.Unsent, announced(t, url))
				}
			}
		})
	}
}

func columnNames(rel *pg.Relation) (names []string) {
	for _, c := range rel.Columns {
		names = append(names, c.Name)
	}
	return names
}

// announced are the columns the server names in the stream.
func announced(t *testing.T, url string) (names []string) {
	t.Helper()
	conn := connect(t, url, `SELECT pg_create_logical_replication_slot('announced_' || current_database(), 'pgoutput', true)`,
		`INSERT INTO outbox (id) VALUES (clock_timestamp()::text)`)
	rows, err := conn.Query(pgtest.Context(t), `SELECT data FROM pg_logical_slot_get_binary_changes('announced_' || current_database(), NULL, NULL, 'proto_version', '1', 'publication_names', 'p')`)
	must.OK(t, err)
	defer rows.Close()
	for rows.Next() {
		var data []byte
		must.OK(t, rows.Scan(&data))
		msg, err := pglogrepl.Parse(data)
		must.OK(t, err)
		if rel, ok := msg.(*pglogrepl.RelationMessage); ok {
			for _, column := range rel.Columns {
				names = append(names, column.Name)
			}
		}
	}
	must.OK(t, rows.Err())
	pgtest.Execute(t, conn, `SELECT pg_drop_replication_slot('announced_' || current_database())`)
	return names
}
