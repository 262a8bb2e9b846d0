package wal

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// The rest of an unwanted frame is thrown away, with any sizes of reads, and the frames
// around do not change.
func TestFrameThrowsAwayWhatIsUnwanted(t *testing.T) {
	for name, chunked := range map[string]func(io.Reader, *rand.Rand) io.Reader{
		"whole":    func(r io.Reader, _ *rand.Rand) io.Reader { return r },
		"bytewise": func(r io.Reader, _ *rand.Rand) io.Reader { return iotest.OneByteReader(r) },
		"random":   func(r io.Reader, random *rand.Rand) io.Reader { return randomReader{r, random} },
	} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(7, 8))
			var stream bytes.Buffer
			var want [][]byte
			for range 200 {
				kind, body := byte(random.Uint32()), bytes.Repeat([]byte{'s'}, random.IntN(1<<random.IntN(16)))
				if random.IntN(4) == 0 {
					body = bytes.Repeat([]byte{kind}, chunkSize+random.IntN(3*chunkSize))
				}
				stream.Write(frame('d', body))
				if len(body) >= chunkSize && kind%2 == 1 {
					body = body[:headSize]
				}
				want = append(want, body)
			}
			f := frameReader{src: chunked(&stream, random), unwanted: func(_ byte, head []byte) bool { return head[0]%2 == 1 }}
			place := int64(0)
			var got [][]byte
			for i := range want {
				_, body, err := f.next()
				if err != nil || f.cut != (len(body) == headSize && len(want[i]) == headSize && body[0]%2 == 1 && body[0] != 's') {
					t.Fatalf("frame %d: cut is %v, %v", i, f.cut, err)
				}
				if f.place() < place+int64(len(body)) {
					t.Fatalf("frame %d: ends at %d, and begins behind %d", i, f.place(), place)
				}
				place = f.place()
				got = append(got, body)
			}
			for i := range want {
				if !bytes.Equal(got[i], want[i]) {
					t.Fatalf("frame %d has %d bytes or other ones; want %d", i, len(got[i]), len(want[i]))
				}
			}
		})
	}
}

func TestFrameGoesOnInTheMiddleOfWhatIsUnwanted(t *testing.T) {
	interrupted := errors.New("interrupted")
	whole := append(frame('d', make([]byte, 3*chunkSize)), frame('c', nil)...)
	f := frameReader{
		src:      io.MultiReader(bytes.NewReader(whole[:2*chunkSize]), iotest.ErrReader(interrupted)),
		unwanted: func(byte, []byte) bool { return true },
	}
	if _, _, err := f.next(); err != interrupted {
		t.Fatal(err)
	}
	f.src = bytes.NewReader(whole[2*chunkSize:])
	if kind, body, err := f.next(); kind != 'c' || len(body) != 0 || err != nil {
		t.Errorf("next frame: %q, %d bytes, %v", kind, len(body), err)
	}
}

// Values of tables of no interest do not enter memory, and the rows around them
// keep their values and their places in the transaction.
func TestStreamThrowsAwayLargeValuesOfOtherTables(t *testing.T) {
	const large = 4 << 20
	s := newSource(t, pgtest.Shared(t), `CREATE TABLE outbox (id int PRIMARY KEY, v text)`,
		`CREATE TABLE other (id int PRIMARY KEY, v text)`, `ALTER TABLE other REPLICA IDENTITY FULL`)
	s.options.Prefix = "outbox"
	s.options.Wanted = func(row *pg.Row) bool { return row.Relation.Name == "outbox" }
	r := s.open(t, 0)
	s.exec(t, `BEGIN`,
		`INSERT INTO outbox VALUES (1, 'a')`,
		`INSERT INTO other VALUES (1, repeat('x', 4194304))`,
		`INSERT INTO outbox VALUES (2, repeat('b', 300000))`,
		`UPDATE other SET id = 2`,
		`SELECT pg_logical_emit_message(true, 'other', repeat('x', 4194304))`,
		`DELETE FROM other`,
		`INSERT INTO outbox VALUES (3, 'c')`,
		`COMMIT`)
	var kinds []Kind
	var unread []bool
	for len(kinds) == 0 || kinds[len(kinds)-1] != Commit {
		msg := must.Get(r.Next(pgtest.Context(t)))(t)
		if len(r.frames.buf) >= large {
			t.Fatalf("a buffer of %d bytes", len(r.frames.buf))
		}
		if msg.Kind == Keepalive {
			continue
		}
		kinds, unread = append(kinds, msg.Kind), append(unread, msg.Unread)
		if msg.Kind == Insert && msg.Row.Relation.Name == "outbox" && len(msg.Row.Values) != 2 {
			t.Errorf("row %d has %d values", len(kinds), len(msg.Row.Values))
		}
		if msg.Kind == Delete && msg.Row.Position.Seq != 5 { // the message of another prefix counts
			t.Errorf("the deletion is change %d of its transaction; want 5", msg.Row.Position.Seq)
		}
	}
	if want := []Kind{Insert, Insert, Insert, Update, Delete, Insert, Commit}; !slices.Equal(kinds, want) {
		t.Errorf("got %v; want %v", kinds, want)
	}
	if want := []bool{false, true, false, true, true, false, false}; !slices.Equal(unread[:6], want[:6]) {
		t.Errorf("unread: %v; want %v", unread, want)
	}
	r.close(t)
}

// PostgreSQL 18.0 to 18.6 tells of the rollback of a large transaction with a released
// savepoint, although nothing of it was sent.
func TestStreamPassesOverARolledBackTransaction(t *testing.T) {
	s := newSource(t, pgtest.Shared(t), `CREATE TABLE t (id int, v text)`,
		`DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET logical_decoding_work_mem = 64'; END $$`)
	s.exec(t, `BEGIN`, `SAVEPOINT s`, `INSERT INTO t VALUES (0, 'in the savepoint')`, `RELEASE s`,
		`INSERT INTO t SELECT n, repeat('x', 300) FROM generate_series(1, 3000) n`, `ROLLBACK`,
		`INSERT INTO t VALUES (1, 'a')`)
	r := s.open(t, 0) // when rolled back
	for _, m := range r.all(t, s) {
		if m.Kind == Insert && string(m.Row.Values[1].Data) != "a" {
			t.Fatalf("a row that was rolled back: %s", m.Row.Values[0].Data)
		}
	}
	r.close(t)
}
