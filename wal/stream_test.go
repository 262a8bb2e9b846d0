package wal

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

func TestStreamDelivers(t *testing.T) {
	const table = `CREATE TABLE t (id int PRIMARY KEY, v text)`
	for _, tc := range []struct {
		name  string
		setup []string
		run   []string
		want  []string
	}{{
		name:  "row operations",
		setup: []string{table},
		run: []string{`BEGIN`, `INSERT INTO t VALUES (1, 'a'), (2, NULL)`, `UPDATE t SET v = 'b' WHERE id = 1`,
			`UPDATE t SET id = 3 WHERE id = 2`, `DELETE FROM t WHERE id = 1`, `COMMIT`},
		want: []string{"insert public.t id=1 v=a", "insert public.t id=2 v=NULL", "update public.t id=1 v=b",
			"update public.t id=3 v=NULL", "delete public.t id=1 v=NULL", "commit"},
	}, {
		name:  "an insert and its delete in one transaction",
		setup: []string{table},
		run:   []string{`BEGIN`, `INSERT INTO t VALUES (1, 'a')`, `DELETE FROM t`, `COMMIT`},
		want:  []string{"insert public.t id=1 v=a", "delete public.t id=1 v=NULL", "commit"},
	}, {
		name:  "an upsert as what it did",
		setup: []string{table, `INSERT INTO t VALUES (1, 'a')`},
		run: []string{`BEGIN`, `INSERT INTO t VALUES (1, 'x'), (2, 'x') ON CONFLICT (id) DO UPDATE SET v = 'b'`,
			`INSERT INTO t VALUES (1, 'y') ON CONFLICT DO NOTHING`, `COMMIT`},
		want: []string{"update public.t id=1 v=b", "insert public.t id=2 v=x", "commit"},
	}, {
		name:  "nothing that was rolled back",
		setup: []string{table},
		run: []string{`BEGIN`, `INSERT INTO t VALUES (1, 'gone')`, `ROLLBACK`,
			`BEGIN`, `INSERT INTO t VALUES (2, 'a')`, `SAVEPOINT s`, `INSERT INTO t VALUES (3, 'gone')`,
			`ROLLBACK TO s`, `INSERT INTO t VALUES (4, 'b')`, `SAVEPOINT s2`, `INSERT INTO t VALUES (5, 'c')`,
			`RELEASE s2`, `COMMIT`},
		want: []string{"insert public.t id=2 v=a", "insert public.t id=4 v=b", "insert public.t id=5 v=c", "commit"},
	}, {
		name:  "truncate, once for several tables",
		setup: []string{table, `CREATE TABLE u (id int)`},
		run:   []string{`BEGIN`, `INSERT INTO t VALUES (1, 'a')`, `TRUNCATE t, u`, `COMMIT`},
		want:  []string{"insert public.t id=1 v=a", "truncate public.t", "commit"},
	}, {
		name:  "logical messages of committed transactions",
		setup: []string{table},
		run: []string{`BEGIN`, `SELECT pg_logical_emit_message(true, 'outbox', 'héllo')`, `INSERT INTO t VALUES (1, 'a')`,
			`SELECT pg_logical_emit_message(true, 'outbox', '')`, `COMMIT`,
			`BEGIN`, `SELECT pg_logical_emit_message(true, 'outbox', 'gone')`, `ROLLBACK`,
			`SELECT pg_logical_emit_message(false, 'outbox', 'of no transaction')`, `INSERT INTO t VALUES (2, 'flushed')`},
		want: []string{"message outbox héllo", "insert public.t id=1 v=a", "message outbox ", "commit",
			"loose message outbox of no transaction", "insert public.t id=2 v=flushed", "commit"},
	}, {
		name:  "quoted and non-ASCII identifiers",
		setup: []string{`CREATE SCHEMA "Schema ""x"""`, `CREATE TABLE "Schema ""x"""."Größe/日本" ("Schlüssel ß" int, "a b" text)`},
		run:   []string{`INSERT INTO "Schema ""x"""."Größe/日本" VALUES (1, 'ż')`},
		want:  []string{`insert Schema "x".Größe/日本 Schlüssel ß=1 a b=ż`, "commit"},
	}, {
		name:  "a changed table from its next row on",
		setup: []string{table},
		run: []string{`BEGIN`, `INSERT INTO t VALUES (1, 'a')`, `ALTER TABLE t ADD COLUMN w int DEFAULT 7`,
			`INSERT INTO t VALUES (2, 'b')`, `ALTER TABLE t RENAME COLUMN v TO text`, `ALTER TABLE t DROP COLUMN w`,
			`INSERT INTO t VALUES (3, 'c')`, `COMMIT`, `ALTER TABLE t RENAME TO renamed`, `INSERT INTO renamed VALUES (4, 'd')`},
		want: []string{"insert public.t id=1 v=a", "insert public.t id=2 v=b w=7", "insert public.t id=3 text=c", "commit",
			"insert public.renamed id=4 text=d", "commit"},
	}, {
		name: "large values that did not change as unsent",
		setup: []string{table, `ALTER TABLE t ALTER v SET STORAGE EXTERNAL`,
			`INSERT INTO t VALUES (1, repeat('x', 10000))`},
		run:  []string{`UPDATE t SET id = 2`},
		want: []string{"update public.t id=2 v=unchanged", "commit"},
	}, {
		name:  "values as text that no setting changes",
		setup: []string{`CREATE TABLE t (b bytea, f float8, ts timestamptz, d date, i interval, j jsonb, n numeric)`},
		run: []string{`SET TIME ZONE 'Asia/Tokyo'`,
			`INSERT INTO t VALUES ('\x00ff', 0.1::float8 + 0.2::float8, '2026-01-02 03:04:05.678+09', '2026-01-02', '1 day 2 hours', '{"a": [1]}', 1.50)`},
		want: []string{`insert public.t b=\x00ff f=0.30000000000000004 ts=2026-01-01 18:04:05.678+00 d=2026-01-02 i=1 day 02:00:00 j={"a": [1]} n=1.50`, "commit"},
	}} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSource(t, pgtest.Shared(t), tc.setup...)
			r := s.open(t, 0)
			s.exec(t, tc.run...)
			wantLines(t, r.all(t, s), tc.want)
			r.close(t)
		})
	}
}

func wantLines(t *testing.T, got []Message, want []string) {
	t.Helper()
	if got := lines(got); !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// Failure mode 20: a prepared transaction is delivered when committed.
func TestStreamDeliversPreparedTransactions(t *testing.T) {
	server := pgtest.Start(t, pgtest.Setting("max_prepared_transactions", "4"))
	s := newSource(t, server, `CREATE TABLE t (id int)`)
	r := s.open(t, 0)
	s.exec(t, `BEGIN`, `INSERT INTO t VALUES (1)`, `PREPARE TRANSACTION 'kept'`,
		`BEGIN`, `INSERT INTO t VALUES (2)`, `PREPARE TRANSACTION 'dropped'`,
		`INSERT INTO t VALUES (3)`)
	before := r.all(t, s)
	wantLines(t, before, []string{"insert public.t id=3", "commit"})
	r.Confirm(r.Received()) // past the prepared transactions
	s.exec(t, `COMMIT PREPARED 'kept'`, `ROLLBACK PREPARED 'dropped'`)
	after := r.all(t, s)
	wantLines(t, after, []string{"insert public.t id=1", "commit"})
	wantPositions(t, append(before, after...))
	r.close(t)
}

func TestStreamNamesColumnTypes(t *testing.T) {
	s := newSource(t, pgtest.Shared(t), `CREATE DOMAIN key AS uuid`, `CREATE DOMAIN inner_key AS key`, `CREATE TYPE mood AS ENUM ('sad', 'ok')`,
		`CREATE DOMAIN tags AS text[]`, `CREATE TABLE t (id inner_key PRIMARY KEY, m mood, g tags, j jsonb, n numeric(10,2))`)
	r := s.open(t, 0)
	s.exec(t, `INSERT INTO t VALUES ('018f6f0e-7d6c-7cc0-8000-000000000000', 'ok', '{a,b}', '{}', 1)`)
	got := r.all(t, s)
	wantLines(t, got, []string{"insert public.t id=018f6f0e-7d6c-7cc0-8000-000000000000 m=ok g={a,b} j={} n=1.00", "commit"})
	insert := got[slices.IndexFunc(got, func(m Message) bool { return m.Kind == Insert })]
	var mood uint32
	must.OK(t, s.sql.QueryRow(pgtest.Context(t), `SELECT 'mood'::regtype::oid`).Scan(&mood))
	want := []pg.Column{
		{Name: "id", Type: 2950, Modifier: pg.UnknownModifier, Identity: true},
		{Name: "m", Type: mood, TypeName: "mood", Modifier: -1},
		{Name: "g", Type: 1009, Modifier: pg.UnknownModifier},
		{Name: "j", Type: 3802, Modifier: -1},
		{Name: "n", Type: 1700, Modifier: 10<<16 + 2 + 4},
	}
	if cols := insert.Row.Relation.Columns; !slices.Equal(cols, want) {
		t.Errorf("columns %v; want %v", cols, want)
	}
	r.close(t)
}

func TestStreamDeliversManyRowsInOrder(t *testing.T) {
	s := newSource(t, pgtest.Shared(t), `CREATE TABLE t (id int, v text)`)
	r := s.open(t, 0)
	const transactions, rows = 300, 10
	s.exec(t, `DO $$ BEGIN FOR i IN 0..299 LOOP
		INSERT INTO t SELECT i * 10 + j, repeat('x', 200) FROM generate_series(0, 9) j; COMMIT; END LOOP; END $$`)
	got := r.all(t, s)
	wantPositions(t, got)
	next := 0
	for _, m := range got {
		if m.Kind != Insert {
			continue
		}
		if seq := m.Row.Position.Seq; seq != uint32(next%rows) {
			t.Fatalf("row %d is number %d of its transaction", next, seq)
		}
		if id := string(m.Row.Values[0].Data); id != strconv.Itoa(next) {
			t.Fatalf("row %s after %d others", id, next)
		}
		next++
	}
	if next != transactions*rows {
		t.Errorf("%d rows; want %d", next, transactions*rows)
	}
	r.close(t)
}

// wantPositions asserts that positions rise, and that each transaction's end
// lies after the commit and before the next transaction's.
func wantPositions(t *testing.T, messages []Message) {
	t.Helper()
	var last pg.Position
	var end pg.LSN
	for i, m := range messages {
		switch pos := m.Row.Position; m.Kind {
		case Keepalive:
			if m.End < end {
				t.Fatalf("message %d: idle at %s after a transaction that ended at %s", i, m.End, end)
			}
		case Commit:
			if m.End <= pos.CommitLSN || m.End <= end {
				t.Fatalf("message %d: transaction committed at %s ends at %s, the one before at %s", i, pos.CommitLSN, m.End, end)
			}
			end = m.End
		default:
			if !last.IsZero() && pos.Compare(last) <= 0 || pos.CommitLSN < end {
				t.Fatalf("message %d: position %v after %v, end %s", i, pos, last, end)
			}
			last = pos
		}
	}
}

func TestStreamDeliversLargeValues(t *testing.T) {
	s := newSource(t, pgtest.Shared(t), `CREATE TABLE t (id int, v text)`)
	r := s.open(t, 0)
	sizes := []int{60 << 10, chunkSize - 100, chunkSize, 5 << 20, 1}
	var want []string
	for i, n := range sizes {
		want = append(want, strings.Repeat(string(rune('a'+i)), n))
		must.Get(s.sql.Exec(pgtest.Context(t), `INSERT INTO t VALUES ($1, $2)`, i, want[i]))(t)
	}
	i := 0
	for _, m := range r.all(t, s) {
		if m.Kind == Insert {
			if got := string(m.Row.Values[1].Data); got != want[i] {
				t.Errorf("value %d of %d bytes arrived changed, as %d bytes", i, len(want[i]), len(got))
			}
			i++
		}
	}
	if i != len(sizes) {
		t.Errorf("%d rows; want %d", i, len(sizes))
	}
	r.close(t)
}
