package catalog

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

func TestFingerprintNotices(t *testing.T) {
	for _, tt := range []struct {
		name          string
		create, alter []string
		changes       bool
	}{
		{"nothing", []string{`CREATE PUBLICATION p FOR TABLE outbox`}, nil, false},
		{"another table added", []string{`CREATE PUBLICATION p FOR TABLE outbox`},
			[]string{`ALTER PUBLICATION p ADD TABLE other`}, false},
		{"SET TABLE to the same", []string{`CREATE PUBLICATION p FOR TABLE outbox`},
			[]string{`ALTER PUBLICATION p SET TABLE outbox, other`}, false},
		{"owner and options", []string{`CREATE PUBLICATION p FOR TABLE outbox`},
			[]string{`ALTER PUBLICATION p SET (publish = 'insert')`, `ALTER TABLE outbox ADD COLUMN x int`}, false},
		{"table removed and added", []string{`CREATE PUBLICATION p FOR TABLE outbox`},
			[]string{`ALTER PUBLICATION p DROP TABLE outbox`, `ALTER PUBLICATION p ADD TABLE outbox`}, true},
		{"table replaced", []string{`CREATE PUBLICATION p FOR TABLE outbox`},
			[]string{`DROP TABLE outbox`, createOutbox, `ALTER PUBLICATION p ADD TABLE outbox`}, true},
		{"publication recreated", []string{`CREATE PUBLICATION p FOR ALL TABLES`},
			[]string{`DROP PUBLICATION p`, `CREATE PUBLICATION p FOR ALL TABLES`}, true},
		{"table of all replaced", []string{`CREATE PUBLICATION p FOR ALL TABLES`},
			[]string{`DROP TABLE outbox`, createOutbox}, false},
		{"schema removed and added", []string{`CREATE PUBLICATION p FOR TABLES IN SCHEMA public`},
			[]string{`ALTER PUBLICATION p DROP TABLES IN SCHEMA public`, `ALTER PUBLICATION p ADD TABLES IN SCHEMA public`}, true},
		{"of two, both removed and added", []string{`CREATE PUBLICATION p FOR TABLE outbox, TABLES IN SCHEMA public`},
			[]string{`ALTER PUBLICATION p DROP TABLE outbox`, `ALTER PUBLICATION p DROP TABLES IN SCHEMA public`,
				`ALTER PUBLICATION p ADD TABLE outbox, TABLES IN SCHEMA public`}, true},
		// Whether the schema came before the table went cannot be told.
		{"one came, the other went", []string{`CREATE PUBLICATION p FOR TABLE outbox`},
			[]string{`ALTER PUBLICATION p ADD TABLES IN SCHEMA public`, `ALTER PUBLICATION p DROP TABLE outbox`}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn := connect(t, pgtest.Shared(t).NewDatabase(t), createOutbox, `CREATE TABLE other (id int PRIMARY KEY)`)
			if strings.Contains(strings.Join(append(tt.create, tt.alter...), ""), "SCHEMA") {
				needVersion(t, conn, 15)
			}
			pgtest.Execute(t, conn, tt.create...)
			before := readPublication(t, conn).Fingerprint([]pg.Table{outbox})
			pgtest.Execute(t, conn, tt.alter...)
			after := readPublication(t, conn).Fingerprint([]pg.Table{outbox})
			if SamePublication(before, after) == tt.changes {
				t.Errorf("before %s, after %s; want a change: %v", before, after, tt.changes)
			}
		})
	}
}

func TestFingerprintIgnoresOrder(t *testing.T) {
	p := Publication{OID: 9, Tables: []PublishedTable{
		{Table: pg.Table{Schema: "a", Name: "x"}, RelID: 1, MemberOID: 2},
		{Table: pg.Table{Schema: "b", Name: "y"}, RelID: 3, MemberOID: 4},
	}}
	tables := []pg.Table{{Schema: "b", Name: "y"}, {Schema: "a", Name: "x"}, {Schema: "c", Name: "z"}}
	const want = "9:a.x=1/2,b.y=3/4,c.z=none"
	if got := p.Fingerprint(tables); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	slices.Reverse(tables)
	if got := p.Fingerprint(tables); got != want {
		t.Errorf("reversed: got %s, want %s", got, want)
	}
}

func TestSamePublication(t *testing.T) {
	for _, tt := range []struct {
		name, before, now string
		same              bool
	}{
		{"nothing yet", "", "", true},
		{"no tables", "7:", "8:", true},
		{"no tables, no publication", "7:", "", true},
		{"equal", `9:a.x=1/2,b.y=schema/4`, `9:a.x=1/2,b.y=schema/4`, true},
		{"membership more", `9:a.x=1/2`, `9:a.x=1/2|schema/5`, true},
		{"membership less", `9:a.x=1/2|schema/5`, `9:a.x=schema/5`, true},
		{"other membership", `9:a.x=1/2`, `9:a.x=schema/5`, false},
		{"one of two tables", `9:a.x=1/2,b.y=3/4`, `9:a.x=1/2|schema/5,b.y=3/6`, false},
		{"other publication", `9:a.x=all`, `10:a.x=all`, false},
		{"table more", `9:a.x=all`, `9:a.x=all,b.y=all`, true},
		{"table more, of another publication", `9:a.x=all`, `8:a.x=all,b.y=all`, false},
		{"table more, and the other one taken out and put back", `9:a.x=1/2`, `9:a.x=1/5,b.y=3/4`, false},
		{"table less", `9:a.x=all,b.y=all`, `9:a.x=all`, false},
		{"other table", `9:a.x=all`, `9:a.y=all`, false},
		{"tables now", `9:`, `9:a.x=all`, true},
		{"never published", `9:a.x=none,b.y=1/2`, `9:a.x=none,b.y=1/2|schema/3`, false},
		{"older form of a table in both", `9:a.x=schema/5`, `9:a.x=1/2|schema/5`, true},
		{"quoted names", `9:"a,b"."x=1|""2"=1/2,c.d=3/4`, `9:"a,b"."x=1|""2"=1/2|schema/5,c.d=3/4`, true},
		{"unreadable", `9:what`, `9:a.x=1/2`, false},
	} {
		if got := SamePublication(tt.before, tt.now); got != tt.same {
			t.Errorf("%s: same is %v for %s and %s", tt.name, got, tt.before, tt.now)
		}
	}
}

// Two memberships from different times are not seen together: here both change
// between the parts of a look.
func TestPublicationIsReadAtOneTime(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t)
	reader, writer := connect(t, url), connect(t, url, createOutbox, `CREATE PUBLICATION p FOR TABLE outbox`)
	needVersion(t, reader, 15)
	before := readPublication(t, reader).Fingerprint([]pg.Table{outbox})
	pgtest.Execute(t, writer, `BEGIN`, `LOCK TABLE pg_publication_namespace IN ACCESS EXCLUSIVE MODE`)
	seen := make(chan string, 1)
	ctx := pgtest.Context(t)
	go func() {
		p, _, err := ReadPublication(ctx, reader, "p")
		if err != nil {
			t.Error(err)
		}
		seen <- p.Fingerprint([]pg.Table{outbox})
	}()
	pgtest.Await(t, writer, `SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND NOT granted)`, int32(reader.PgConn().PID()))
	pgtest.Execute(t, writer, `ALTER PUBLICATION p DROP TABLE outbox`, `ALTER PUBLICATION p ADD TABLES IN SCHEMA public`, `COMMIT`)
	got := <-seen
	if after := readPublication(t, writer).Fingerprint([]pg.Table{outbox}); got != before && got != after {
		t.Errorf("seen %s, which never was: before it was %s, after it %s", got, before, after)
	}
}
