package admin

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Failure mode 76. A transaction with writes to a table from before the table
// joins a publication would be published in part, or not at all. setup waits for
// the transaction, not for ever, and names the session; its SQL and check's
// remedy do the same.
func TestATableJoinsThePublicationBehindItsWriters(t *testing.T) {
	join := map[string]func(f *fixture) error{
		"setup": func(f *fixture) error {
			_, err := Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium})
			return err
		},
		"setup --print": func(f *fixture) error {
			_, err := f.conn.Exec(f.ctx(), catalog.EnsurePublicationSQL(f.Source.Publication, f.Source.Tables))
			return err
		},
		"check": func(f *fixture) error {
			v := &catalog.View{}
			s := must.Get(newSession(f.Config))(f.t)
			must.OK(f.t, v.ReadPublication(f.ctx(), f.conn, s.source()))
			_, err := f.conn.Exec(f.ctx(), failure.RemedyOf(v.Unfit()))
			if err != nil {
				_, _ = f.conn.Exec(f.ctx(), `ROLLBACK`)
			}
			return err
		},
	}
	for how, do := range join {
		t.Run(how, func(t *testing.T) {
			f := sound(t)
			f.exec(`CREATE TABLE second (LIKE outbox INCLUDING ALL)`)
			f.Source.Tables = append(f.Source.Tables, pg.Table{Schema: "public", Name: "second"})
			const row = `INSERT INTO second (aggregatetype, aggregateid, type, payload) VALUES ('order', '1', 'Placed', '{}')`
			writer := must.Get(pgx.Connect(f.ctx(), f.Source.URL.Reveal()))(t)
			t.Cleanup(func() { _ = writer.Close(context.Background()) })
			pgtest.Execute(t, writer, `BEGIN`, row)
			err := do(f)
			switch {
			case err == nil:
				t.Error("it did not wait for the writer")
			case how == "check":
				must.Contain(t, err.Error(), "lock timeout")
			default:
				must.Contain(t, err.Error(), fmt.Sprintf("process %d", writer.PgConn().PID()))
			}
			pgtest.Execute(t, writer, row, `COMMIT`)
			must.OK(t, do(f))
			f.exec(row)
			if commits := f.commits(1); commits[0].XID == 0 {
				t.Errorf("what was written behind it did not come: %v", commits)
			}
		})
	}
}
