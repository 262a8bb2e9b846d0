package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// readAll reads a snapshot into a line of text per row.
func readAll(t *testing.T, conn *pgx.Conn, name string, from pg.Position) []string {
	t.Helper()
	rel, ok, err := ReadColumns(pgtest.Context(t), conn, outbox)
	if err != nil || !ok {
		t.Fatalf("read columns: %v, %v", ok, err)
	}
	var lines []string
	s := Snapshot{Name: name, Table: outbox, Relation: rel, Position: from}
	must.OK(t, ReadSnapshot(pgtest.Context(t), conn, s, func(r *pg.Row) error {
		line := fmt.Sprintf("%s/%d", r.Position.CommitLSN, r.Position.Seq)
		for _, v := range r.Values {
			line += fmt.Sprintf(" %c:%s", v.Kind, v.Data)
		}
		if r.CommitTime.IsZero() || r.Relation != rel {
			t.Errorf("row of %v at %v", r.Relation, r.CommitTime)
		}
		lines = append(lines, line)
		return nil
	}))
	return lines
}

func TestReadSnapshotOrder(t *testing.T) {
	const (
		v4 = `'6fa459ea-ee8a-4ca4-894e-db77e160355e'`
		b7 = `'0198b2c0-0000-7000-8000-000000000002'`
		a7 = `'0198b2c0-0000-7000-8000-000000000001'`
	)
	for _, tt := range []struct {
		name, table, rows string
		want              []string
	}{
		{"empty", `id int PRIMARY KEY, v text`, ``, nil},
		{"integer key", `id int8 PRIMARY KEY, v text`, `(2, 'b'), (1, NULL), (10, '')`,
			[]string{"0/7/3 t:1 n:", "0/7/4 t:2 t:b", "0/7/5 t:10 t:"}},
		{"UUIDs of version 7", `id uuid PRIMARY KEY, v text`, `(` + b7 + `, 'b'), (` + a7 + `, 'a')`,
			[]string{"0/7/3 t:0198b2c0-0000-7000-8000-000000000001 t:a", "0/7/4 t:0198b2c0-0000-7000-8000-000000000002 t:b"}},
		{"other UUIDs as they lie", `id uuid PRIMARY KEY, v text`, `(` + v4 + `, 'b'), (` + a7 + `, 'a')`,
			[]string{"0/7/3 t:6fa459ea-ee8a-4ca4-894e-db77e160355e t:b", "0/7/4 t:0198b2c0-0000-7000-8000-000000000001 t:a"}},
		{"no key", `v text`, `('b'), ('a')`, []string{"0/7/3 t:b", "0/7/4 t:a"}},
		{"quoted names", `"The ""Id""" int PRIMARY KEY, "select" text`, `(2, 'b'), (1, 'a')`,
			[]string{"0/7/3 t:1 t:a", "0/7/4 t:2 t:b"}},
		{"text form of the stream", `b bytea, t timestamptz, i interval, f float8`,
			`('\x00ff', '2026-01-02 03:04:05+02', '1 day 2 hours', 0.1)`,
			[]string{`0/7/3 t:\x00ff t:2026-01-02 01:04:05+00 t:1 day 02:00:00 t:0.1`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn := connect(t, pgtest.Shared(t).NewDatabase(t), `CREATE TABLE outbox (`+tt.table+`)`)
			if tt.rows != "" {
				pgtest.Execute(t, conn, `INSERT INTO outbox VALUES `+tt.rows)
			}
			got := readAll(t, conn, "", pg.Position{CommitLSN: 7, Seq: 3})
			if !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
			pgtest.Execute(t, conn, `CREATE TABLE after_it (i int)`) // the transaction is over
		})
	}
}

func TestReadSnapshotStops(t *testing.T) {
	stop := errors.New("stop here")
	for _, tt := range []struct {
		name string
		fn   func(context.CancelFunc) error
		want error
	}{
		{"on the caller's error", func(context.CancelFunc) error { return stop }, stop},
		{"on cancelation", func(cancel context.CancelFunc) error { cancel(); return nil }, context.Canceled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn := connect(t, pgtest.Shared(t).NewDatabase(t), `CREATE TABLE outbox (id int PRIMARY KEY, v text)`,
				`INSERT INTO outbox SELECT i, repeat('x', 10000) FROM generate_series(1, 5000) i`)
			rel, _, err := ReadColumns(pgtest.Context(t), conn, outbox)
			must.OK(t, err)
			ctx, cancel := context.WithCancel(pgtest.Context(t))
			defer cancel()
			err = ReadSnapshot(ctx, conn, Snapshot{Table: outbox, Relation: rel}, func(*pg.Row) error { return tt.fn(cancel) })
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestReadSnapshotThatIsGone(t *testing.T) {
	conn := connect(t, pgtest.Shared(t).NewDatabase(t), createOutbox)
	err := ReadSnapshot(pgtest.Context(t), conn, Snapshot{Name: "00000003-0000001B-1", Table: outbox}, nil)
	if err == nil {
		t.Fatal("read from a snapshot that does not exist")
	}
	pgtest.Execute(t, conn, `SELECT 1`) // the connection is still usable
}

// Decoding needs no right to read the table, so the role may lack the right: a
// retry would not help.
func TestReadSnapshotNeedsTheRightToRead(t *testing.T) {
	conn := connect(t, pgtest.Shared(t).NewDatabase(t), createOutbox)
	pgtest.Execute(t, conn, `DROP ROLE IF EXISTS snapshot_poor`)
	pgtest.Execute(t, conn, `CREATE ROLE snapshot_poor`)
	pgtest.Execute(t, conn, `SET ROLE snapshot_poor`)
	rel, _, err := ReadColumns(pgtest.Context(t), conn, outbox)
	must.OK(t, err)
	err = ReadSnapshot(pgtest.Context(t), conn, Snapshot{Table: outbox, Relation: rel}, nil)
	want := `GRANT SELECT ON "public"."outbox" TO "` + conn.Config().User + `";`
	if failure.ClassOf(err) != failure.Config || failure.RemedyOf(err) != want {
		t.Errorf("%v, remedy %q; want a configuration error with %q", err, failure.RemedyOf(err), want)
	}
}

// Rows hidden by a policy would be missing without a word.
func TestReadSnapshotHidesNoRows(t *testing.T) {
	conn := connect(t, pgtest.Shared(t).NewDatabase(t), createOutbox, `INSERT INTO outbox VALUES (gen_random_uuid(), '{}')`,
		`ALTER TABLE outbox ENABLE ROW LEVEL SECURITY`, `DROP ROLE IF EXISTS snapshot_bound`, `CREATE ROLE snapshot_bound`,
		`GRANT SELECT ON outbox TO snapshot_bound`, `SET ROLE snapshot_bound`)
	rel, _, err := ReadColumns(pgtest.Context(t), conn, outbox)
	must.OK(t, err)
	err = ReadSnapshot(pgtest.Context(t), conn, Snapshot{Table: outbox, Relation: rel}, nil)
	if failure.ClassOf(err) != failure.Config || !strings.Contains(failure.RemedyOf(err), "BYPASSRLS") {
		t.Errorf("%v, remedy %q; want a configuration error", err, failure.RemedyOf(err))
	}
	pgtest.Execute(t, conn, `RESET ROLE`, `DROP OWNED BY snapshot_bound`, `DROP ROLE snapshot_bound`)
}
