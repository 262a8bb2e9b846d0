package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// upgradesEnv has all drills of major upgrades run, and not only two of them.
const upgradesEnv = "CDC_OUTBOX_UPGRADES"

// Under load, the writers stop, the server is upgraded by pg_upgrade, and the load
// goes on: from 17 on with the slot that pg_upgrade keeps, before with a new one.
// All events arrive, in order and once. The standstill is in the log.
func TestE2EMajorUpgrade(t *testing.T) {
	for name, c := range map[string]struct {
		from    int
		slot    string // what finish says of it
		options options
		usual   bool // also without upgradesEnv
	}{
		"15 to 18":               {15, "created", options{}, true},
		"15 to 18 exactly once":  {15, "created", options{exactlyOnce: true}, false},
		"17 to 18":               {17, "kept by pg_upgrade", options{}, false},
		"17 to 18 exactly once":  {17, "kept by pg_upgrade", options{exactlyOnce: true}, true},
		"17 to 18 in PostgreSQL": {17, "kept by pg_upgrade", options{config: "checkpoint:\n  store: postgres\n"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			drill(t, c.usual)
			c.options.server = pgtest.Start(t, pgtest.Own(), pgtest.Complete(t, c.from))
			w := newWorld(t, c.options)
			conn := w.start()
			load := w.write(seed(t), 8*time.Millisecond, 0)
			load.await(300)

			load.stop()
			stopped := time.Now()
			must.Contain(t, w.wantExit(2, w.config, "upgrade", "prepare", "--yes"), "is in Kafka", "stop the connector")
			conn.stop()
			must.Contain(t, w.wantExit(0, w.config, "upgrade", "prepare", "--yes"), "is in Kafka, and the marker of", "pg_upgrade")
			must.Contain(t, w.wantExit(2, w.config, "upgrade", "finish"), "the server of the preparation still")
			must.OK(t, c.options.server.Upgrade(t, 18))
			must.Contain(t, w.wantExit(3, w.config, "run"), "wrong database cluster", "upgrade finish")
			must.Contain(t, w.wantExit(2, w.config, "upgrade", "finish"), "it is the old server, upgraded", "nothing was changed")
			must.Contain(t, w.wantExit(0, w.config, "upgrade", "finish", "--yes"), c.slot, "run goes on from")
			must.Contain(t, w.wantExit(0, w.config, "upgrade", "finish", "--yes"), "the checkpoint is of this server")
			conn = w.start()
			t.Logf("standstill: %.1f s, from the writers' stop until the connector streams", time.Since(stopped).Seconds())
			load = w.write(seed(t), 8*time.Millisecond, 0)
			load.await(300)
			_, report := w.finish(load, conn)
			w.wantNoneAgain(report, "after an upgrade")
		})
	}
}

// drill skips a drill that is not among the usual.
func drill(t *testing.T, usual bool) {
	t.Helper()
	if !usual && os.Getenv(upgradesEnv) == "" {
		t.Skipf("set %s for all upgrades", upgradesEnv)
	}
}

// Writers that go on after the marker: pg_upgrade refuses the slot of 17 that has
// not confirmed all, and finish publishes what a server before 17 has besides.
func TestE2EMajorUpgradeWithLateWriters(t *testing.T) {
	for name, from := range map[string]int{"15 to 18": 15, "17 to 18": 17} {
		t.Run(name, func(t *testing.T) {
			drill(t, false)
			server := pgtest.Start(t, pgtest.Own(), pgtest.Complete(t, from))
			w := newWorld(t, options{server: server, unread: true, exactlyOnce: true})
			w.exec(byCommit...)
			c := w.start()
			stream := w.insertAlways()
			w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(200))
			c.stop()
			w.wantExit(1, w.config, "upgrade", "prepare", "--yes")
			before := stream.end(t)
			c = w.start()
			w.wantExit(2, w.config, "upgrade", "prepare", "--yes")
			c.stop()
			w.wantExit(0, w.config, "upgrade", "prepare", "--yes")
			w.insertEvents(before+1, before+50)

			err := server.Upgrade(t, 18)
			w.sql = connect(t, w.url)
			if from < 17 {
				must.OK(t, err)
				said := w.wantExit(0, w.config, "upgrade", "finish", "--yes")
				must.Contain(t, said, "50 rows are of transactions that may have ended after the marker", "published 50, dead-lettered 0, skipped 0")
			} else {
				if err == nil {
					t.Fatal("pg_upgrade has taken a slot that has not confirmed all")
				}
				must.Contain(t, w.wantExit(1, w.config, "upgrade", "prepare", "--yes"), "50 events that are not published")
				c = w.start()
				w.wantExit(2, w.config, "upgrade", "prepare", "--yes")
				c.stop()
				w.wantExit(0, w.config, "upgrade", "prepare", "--yes")
				must.OK(t, server.Upgrade(t, 18))
				w.sql = connect(t, w.url)
				must.Contain(t, w.wantExit(0, w.config, "upgrade", "finish", "--yes"), "kept by pg_upgrade")
			}
			c = w.start()
			w.insertEvents(before+51, before+100)
			w.wantEachInOrder(before + 100)
			must.Contain(t, w.wantExit(0, w.config, "verify"), " 0 missing, 0 unknown")
			c.stop()
		})
	}
}

// byCommit has the order of rows for repair in a column.
var byCommit = []string{"ALTER TABLE outbox ADD COLUMN at timestamptz DEFAULT clock_timestamp()"}

// A copy by logical replication takes over: the subscription and the sequence that
// stood still are refused, what the old server has not published is published
// first, and the order per key stays.
func TestE2EBlueGreenUpgrade(t *testing.T) {
	for name, once := range map[string]bool{"at least once": false, "exactly once": true} {
		t.Run(name, func(t *testing.T) {
			drill(t, false)
			blue := pgtest.Start(t, pgtest.Own(), pgtest.Complete(t, 15))
			green := pgtest.Start(t, pgtest.Own(), pgtest.Complete(t, 18))
			w := newWorld(t, options{server: blue, unread: true, exactlyOnce: once})
			w.exec(byCommit...)
			w.exec("ALTER TABLE outbox ADD COLUMN nr int GENERATED BY DEFAULT AS IDENTITY")
			c := w.start()
			stream := w.insertAlways()
			w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(100))

			database := w.url[strings.LastIndex(w.url, "/")+1:]
			green.Exec(t, "CREATE DATABASE "+database)
			copied := connect(t, green.URL(database))
			for _, sql := range []string{
				`CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text, note text,
					at timestamptz DEFAULT clock_timestamp(), nr int GENERATED BY DEFAULT AS IDENTITY)`,
				fmt.Sprintf("CREATE SUBSCRIPTION green CONNECTION '%s' PUBLICATION %s", w.url, w.slot),
			} {
				must.Get(copied.Exec(t.Context(), sql))(t)
			}
			stream.await(t, 200)
			written := stream.end(t)
			stopped := time.Now()
			w.wantExit(2, w.config, "upgrade", "prepare", "--yes")
			c.stop()
			w.wantExit(0, w.config, "upgrade", "prepare", "--yes")
			w.insertEvents(written+1, written+20) // a writer that was forgotten
			written += 20
			pgtest.Await(t, copied, "SELECT count(*) = $1 FROM outbox", written)

			w.url, w.host = green.URL(database), hostOf(t, green.URL(database))
			w.sql = connect(t, w.url)
			w.postgres = listen(t, "127.0.0.1:0", w.address())
			w.writeConfig(options{exactlyOnce: once})
			must.Contain(t, w.wantExit(2, w.config, "upgrade", "finish", "--yes"), "subscription green writes into table public.outbox", "setval")
			w.exec("ALTER SUBSCRIPTION green DISABLE", "SELECT setval('outbox_nr_seq', (SELECT max(nr) FROM outbox))")
			must.Contain(t, w.wantExit(0, w.config, "upgrade", "finish", "--yes"), "no result of pg_upgrade", "published 20, dead-lettered 0")
			c = w.start()
			t.Logf("standstill: %.1f s, from the writers' stop until the connector streams", time.Since(stopped).Seconds())
			w.insertEvents(written+1, written+100)
			w.wantEachInOrder(written + 100)
			must.Contain(t, w.wantExit(0, w.config, "verify"), " 0 missing, 0 unknown")
			c.stop()
		})
	}
}

// insertEvents commits events from and to, as insertAlways does.
func (w *world) insertEvents(from, to int) {
	w.t.Helper()
	for n := from; n <= to; n++ {
		w.exec(fmt.Sprintf(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES ('%s', 'order', 'key %d', 'Placed', '%d')`, eventID(n), n%5, n))
	}
}

// wantEachInOrder wants events 1 to written in the topic, each once, and in order
// per key, whoever published them.
func (w *world) wantEachInOrder(written int) {
	w.t.Helper()
	last := map[string]int{}
	records := w.broker.Consume(w.t, []string{topicOf("order")}, kafkatest.Count(written))
	if len(records) != written {
		w.t.Errorf("%d records, want %d", len(records), written)
	}
	for _, r := range records {
		var n int
		must.Get(fmt.Sscan(string(r.Value), &n))(w.t)
		key := string(r.Key)
		if n <= last[key] {
			w.t.Errorf("%s: event %d comes after %d", key, n, last[key])
		}
		last[key] = n
	}
}
