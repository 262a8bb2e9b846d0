package catalog

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Failure mode 105: the table meant by a missing name.
func TestMissingTableNamesTheOneThatIsMeant(t *testing.T) {
	for name, c := range map[string]struct {
		tables       []string // existing
		wanted, near string
	}{
		"none":                        {nil, "outbox", ""},
		"nothing like it":             {[]string{"orders"}, "outbox", ""},
		"upper case":                  {[]string{`"OutBox"`, "outbax"}, "OutBox", `public."OutBox"`},
		"lower case":                  {[]string{"outbox"}, `"Outbox"`, "public.outbox"},
		"schema in upper case":        {[]string{`"App".outbox`, "app.outbax"}, "app.outbox", `"App".outbox`},
		"another schema":              {[]string{"app.outbox"}, "outbox", "app.outbox"},
		"case before another schema":  {[]string{"app.outbox", `"Outbox"`}, "outbox", `public."Outbox"`},
		"one letter":                  {[]string{"outbox", "app.outbx"}, "outbx2", "public.outbox"},
		"one letter, in other schema": {[]string{"app.outbox"}, "outbx", ""},
	} {
		t.Run(name, func(t *testing.T) {
			conn := connect(t, pgtest.Shared(t).NewDatabase(t))
			for _, table := range c.tables {
				for _, sql := range []string{`CREATE SCHEMA IF NOT EXISTS app`, `CREATE SCHEMA IF NOT EXISTS "App"`, `CREATE TABLE ` + must.Get(pg.ParseTable(table))(t).Quoted() + ` ()`} {
					pgtest.Execute(t, conn, sql)
				}
			}
			m := must.Get(FindNamesake(t.Context(), conn, must.Get(pg.ParseTable(c.wanted))(t)))(t)
			near := ""
			if m.Near != (pg.Table{}) {
				near = m.Near.String()
			}
			if near != c.near {
				t.Errorf("near is %q, want %q", near, c.near)
			}
			if err := Missing(t.Context(), conn, m.Table); failure.ClassOf(err) != failure.Config {
				t.Errorf("got %v", err)
			}
		})
	}
}
