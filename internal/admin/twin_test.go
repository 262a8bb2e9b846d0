package admin

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Failure mode 105. An ORM has made "EventOutbox", and source.tables names EventOutbox.
func TestSetupMakesNoSecondTableBesideOneOfAnotherCase(t *testing.T) {
	for _, mode := range []string{config.ModeWAL, config.ModePoll} {
		t.Run(mode, func(t *testing.T) {
			f := empty(t)
			f.Source.Mode = mode
			f.exec(`CREATE TABLE "EventOutbox" (id text PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text)`)
			f.Source.Tables = []pg.Table{must.Get(pg.ParseTable("EventOutbox"))(t)}
			const meant = `'public."EventOutbox"'`

			finding := f.wantCheck("table public.eventoutbox", Fail, "does not exist")
			if !strings.Contains(finding.Remedy, meant) || strings.Contains(finding.Remedy, "setup") {
				t.Errorf("check advises %q", finding.Remedy)
			}
			_, err := Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium})
			wantClass(t, err, failure.Config, "upper and lower case only")
			if remedy := failure.RemedyOf(err); !strings.Contains(remedy, meant) {
				t.Errorf("setup advises %q", remedy)
			}
			script := must.Get(Script(f.Config, SetupOptions{Schema: SchemaDebezium}))(t)
			_, err = f.conn.PgConn().Exec(f.ctx(), script).ReadAll()
			if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || !strings.Contains(refused.Hint, meant) {
				t.Errorf("the script: %v", err)
			}
			var there bool
			must.OK(t, f.conn.QueryRow(f.ctx(), `SELECT to_regclass('public.eventoutbox') IS NOT NULL`).Scan(&there))
			if there {
				t.Fatal("a second table was made")
			}

			// A second table made on purpose, and check's words about it.
			f.exec(`CREATE TABLE eventoutbox (LIKE "EventOutbox" INCLUDING ALL, seq bigint GENERATED ALWAYS AS IDENTITY, published boolean NOT NULL DEFAULT false, created_at timestamptz NOT NULL DEFAULT now())`)
			f.wantCheck("table public.eventoutbox", Warn, `there is table public."EventOutbox"`)
		})
	}
}

// Failure mode 105. A table of the name in another schema may be meant, or not.
func TestSetupNamesATableOfTheSameNameElsewhere(t *testing.T) {
	f := empty(t)
	f.exec(`CREATE SCHEMA app`, `CREATE TABLE app.outbox (id text)`)
	finding := f.wantCheck("table public.outbox", Fail, "does not exist")
	if !strings.Contains(finding.Remedy, "did you mean app.outbox?") {
		t.Errorf("check advises %q", finding.Remedy)
	}
	steps := must.Get(Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium}))(t)
	if !strings.Contains(steps[0].Detail, "there is table app.outbox, too") {
		t.Errorf("setup says %+v", steps[0])
	}
}
