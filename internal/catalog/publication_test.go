package catalog

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

var outbox = pg.Table{Schema: "public", Name: "outbox"}

const createOutbox = `CREATE TABLE outbox (id uuid PRIMARY KEY, payload jsonb, note text)`

// readPublication reads publication p, which must exist.
func readPublication(t *testing.T, conn *pgx.Conn) Publication {
	t.Helper()
	p, ok, err := ReadPublication(pgtest.Context(t), conn, "p")
	if err != nil || !ok {
		t.Fatalf("read publication: found %v, %v", ok, err)
	}
	return p
}

func readTable(t *testing.T, conn *pgx.Conn, table pg.Table) TableInfo {
	t.Helper()
	info, ok, err := ReadTable(pgtest.Context(t), conn, table)
	if err != nil || !ok {
		t.Fatalf("read table: found %v, %v", ok, err)
	}
	return info
}

// Each remedy must be SQL mending its fault.
func TestCheckPublication(t *testing.T) {
	for _, tt := range []struct {
		name    string
		version int
		setup   []string
		failure string // of the only failure; "" for none
		warning string
	}{
		{"no insert", 14, []string{createOutbox, `CREATE PUBLICATION p FOR TABLE outbox WITH (publish = 'update')`},
			"does not publish inserts", ""},
		{"table missing", 14, []string{createOutbox, `CREATE PUBLICATION p`},
			`table public.outbox is not in publication "p"`, ""},
		{"row filter", 15, []string{createOutbox, `CREATE PUBLICATION p FOR TABLE outbox WHERE (note = 'x') WITH (publish = 'insert')`},
			"has a row filter on table public.outbox", ""},
		{"column list without the payload", 15, []string{createOutbox, `CREATE PUBLICATION p FOR TABLE outbox (id, note)`},
			"leaves out columns of table public.outbox that are needed: payload", ""},
		{"partitioned, under the partitions' names", 14, []string{
			`CREATE TABLE outbox (id int, payload jsonb, PRIMARY KEY (id)) PARTITION BY RANGE (id)`, `CREATE PUBLICATION p FOR TABLE outbox`},
			"publishes its rows under the partitions' names", ""},
		{"updates without replica identity", 14, []string{`CREATE TABLE outbox (id int, payload jsonb)`,
			`CREATE PUBLICATION p FOR TABLE outbox WITH (publish = 'insert, update')`},
			"", "PostgreSQL refuses them to the application"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn := connect(t, pgtest.Shared(t).NewDatabase(t))
			needVersion(t, conn, tt.version)
			pgtest.Execute(t, conn, tt.setup...)
			check := func() (failures, warnings []error) {
				return CheckPublication(readPublication(t, conn),
					[]TableInfo{readTable(t, conn, outbox)}, map[pg.Table][]string{outbox: {"id", "payload"}})
			}

			failures, warnings := check()
			wantOnly(t, "warnings", warnings, tt.warning)
			wantOnly(t, "failures", failures, tt.failure)
			for _, err := range failures {
				wantConfig(t, err)
				pgtest.Execute(t, conn, failure.RemedyOf(err))
			}
			if failures, _ = check(); len(failures) > 0 {
				t.Errorf("after the remedy: %v", failures)
			}
		})
	}
}

func TestRemedyKeepsTheOtherTables(t *testing.T) {
	conn := connect(t, pgtest.Shared(t).NewDatabase(t), createOutbox, `CREATE TABLE "O" (i int PRIMARY KEY, j int)`)
	needVersion(t, conn, 15)
	pgtest.Execute(t, conn, `CREATE PUBLICATION p FOR TABLE "O" (i) WHERE (i > 1), outbox WHERE (note = 'x') WITH (publish = 'insert')`)
	other := pg.Table{Schema: "public", Name: "O"}
	before, _ := readPublication(t, conn).table(other)

	failures, _ := CheckPublication(readPublication(t, conn), []TableInfo{readTable(t, conn, outbox)}, nil)
	pgtest.Execute(t, conn, failure.RemedyOf(failures[0]))

	after, ok := readPublication(t, conn).table(other)
	if !ok || after.RowFilter != before.RowFilter || !slices.Equal(after.Columns, before.Columns) {
		t.Errorf("the other table was %+v and is %+v", before, after)
	}
}

// Rows move between partitions read as separate tables, and are new in the
// second.
func TestCheckPublicationNamesPartitionsOfOneTable(t *testing.T) {
	conn := connect(t, pgtest.Shared(t).NewDatabase(t), `CREATE TABLE root (id int PRIMARY KEY) PARTITION BY LIST (id)`,
		`CREATE TABLE a PARTITION OF root FOR VALUES IN (1)`, `CREATE TABLE b PARTITION OF root FOR VALUES IN (2)`, `CREATE TABLE c PARTITION OF root DEFAULT`,
		`CREATE PUBLICATION p FOR TABLE a, b, c WITH (publish = 'insert')`)
	var infos []TableInfo
	for _, name := range []string{"a", "b", "c"} {
		infos = append(infos, readTable(t, conn, pg.Table{Schema: "public", Name: name}))
	}
	failures, warnings := CheckPublication(readPublication(t, conn), infos, nil)
	wantOnly(t, "failures", failures, "")
	wantOnly(t, "warnings", warnings, "public.a and public.b are partitions of public.root")
	_, warnings = CheckPublication(readPublication(t, conn), infos[:1], nil)
	wantOnly(t, "warnings", warnings, "")
}

func TestCreatePublication(t *testing.T) {
	for _, tt := range []struct {
		name, table     string
		update, viaRoot bool
	}{
		{"with primary key", createOutbox, true, false},
		{"with a key that is checked at the commit", `CREATE TABLE outbox (id int PRIMARY KEY DEFERRABLE)`, false, false},
		{"partitioned, with the whole row as identity", `CREATE TABLE outbox (id int) PARTITION BY HASH (id); ALTER TABLE outbox REPLICA IDENTITY FULL`, false, true},
		{"without replica identity", `CREATE TABLE outbox (id int)`, false, false},
		{"replica identity full", `CREATE TABLE outbox (id int); ALTER TABLE outbox REPLICA IDENTITY FULL`, true, false},
		{"replica identity nothing", createOutbox + `; ALTER TABLE outbox REPLICA IDENTITY NOTHING`, false, false},
		{"partitioned", `CREATE TABLE outbox (id int PRIMARY KEY) PARTITION BY HASH (id)`, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn := connect(t, pgtest.Shared(t).NewDatabase(t), strings.Split(tt.table, ";")...)
			info := readTable(t, conn, outbox)
			must.OK(t, CreatePublication(pgtest.Context(t), conn, "p", []TableInfo{info}))
			p := readPublication(t, conn)
			if !p.Insert || p.Update != tt.update || p.Delete != (tt.update && tt.viaRoot) || p.Truncate || p.ViaRoot != tt.viaRoot {
				t.Errorf("publishes %+v", p)
			}
			failures, warnings := CheckPublication(p, []TableInfo{info}, nil)
			wantOnly(t, "failures", failures, "")
			wantOnly(t, "warnings", warnings, "")
		})
	}
}

func TestCreatePublicationRefused(t *testing.T) {
	for _, tt := range []struct{ name, setup, state string }{
		{"unlogged table", `CREATE UNLOGGED TABLE outbox (id int)`, "22023"},
		{"exists already", createOutbox + `; CREATE PUBLICATION p`, "42710"},
		{"role without rights", createOutbox + `; SET ROLE pg_monitor`, "42501"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn := connect(t, pgtest.Shared(t).NewDatabase(t), strings.Split(tt.setup, ";")...)
			err := CreatePublication(pgtest.Context(t), conn, "p", []TableInfo{readTable(t, conn, outbox)})
			if pgsql.State(err) != tt.state {
				t.Errorf("got %v, want SQLSTATE %s", err, tt.state)
			}
			wantConfig(t, err)
		})
	}
}

// An index being built, a VACUUM: the lock passes, and an operator can see the holder.
func TestCreatePublicationOfALockedTable(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t)
	conn := connect(t, url, createOutbox, "SET lock_timeout = 10")
	info := readTable(t, conn, outbox)
	connect(t, url, "BEGIN", "LOCK TABLE outbox IN SHARE MODE")
	err := CreatePublication(pgtest.Context(t), conn, "p", []TableInfo{info})
	if pgsql.State(err) != "55P03" || failure.ClassOf(err) != failure.Transient || failure.RemedyOf(err) == "" {
		t.Errorf("got %v (class %d), remedy %q", err, failure.ClassOf(err), failure.RemedyOf(err))
	}
}

func needVersion(t *testing.T, conn *pgx.Conn, major int) {
	t.Helper()
	s := must.Get(ReadServer(pgtest.Context(t), conn))(t)
	if s.Major() < major {
		t.Skipf("needs PostgreSQL %d", major)
	}
}

// wantOnly asserts a single error containing text, or none for "".
func wantOnly(t *testing.T, what string, errs []error, text string) {
	t.Helper()
	switch {
	case text == "" && len(errs) > 0:
		t.Errorf("%s: got %v, want none", what, errs)
	case text != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), text)):
		t.Errorf("%s: got %v, want one with %q", what, errs, text)
	}
}
