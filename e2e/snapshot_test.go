package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// With source.snapshot: initial, events from before setup, from between setup
// and the first start, and from after the start arrive once each: the snapshot is
// of the position where the slot begins.
func TestE2ESnapshotAfterSetup(t *testing.T) {
	w := newWorld(t, options{direct: true, unread: true})
	w.rewriteConfig("source:\n", "source:\n  snapshot: initial\n")
	w.insertID(1, "aggregateid")
	w.run("setup")
	if _, ok := w.look(); ok {
		t.Error("setup made a slot without the snapshot of its position")
	}
	w.insertID(2, "aggregateid")
	c := w.start()
	w.insertID(3, "aggregateid")
	w.insertID(4, "aggregateid")
	got := ids(w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(4)))
	c.stop()
	if want := []string{eventID(1), eventID(2), eventID(3), eventID(4)}; !slices.Equal(got, want) {
		t.Errorf("the topic has %v, want %v", got, want)
	}
	if n := w.seriesLength(); n != 4 {
		t.Errorf("the topic has %d records, want 4", n)
	}
}

// Failure mode 200: kills in the middle of a snapshot, under load. The snapshot goes on
// behind the last checkpoint: in order per key, and with exactly_once nothing comes twice.
func TestE2ESnapshotIsResumedAfterKills(t *testing.T) {
	const rows, kills = 60_000, 6
	for name, kept := range map[string]struct {
		once bool
		at   store.Options
	}{
		"at_least_once": {false, store.Options{Store: store.StoreKafka}},
		"exactly_once":  {true, store.Options{Store: store.StoreKafka}},
		"in_a_file":     {false, store.Options{Store: store.StoreFile, Path: filepath.Join(t.TempDir(), "checkpoint")}},
		"in_PostgreSQL": {false, store.Options{Store: store.StorePostgres}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 7))
			o := options{unread: true, exactlyOnce: kept.once, kafka: "max_buffered_bytes: 1MiB",
				config: fmt.Sprintf("checkpoint:\n  interval: 10ms\n  store: %s\n  path: %q\n", kept.at.Store, kept.at.Path)}
			w := newWorld(t, o)
			w.kept = kept.at
			w.rewriteConfig("source:\n", "source:\n  snapshot: initial\n")
			w.exec(fmt.Sprintf(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
				SELECT ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, 'order', 'key ' || n %% 5, 'Placed', n::text FROM generate_series(1, %d) n`, rows))
			w.run("setup")
			stream := w.insertFrom(rows + 1)
			var saved int64
			for n := range kills {
				c := w.start()
				from := c.snapshotFrom()
				if from < saved {
					t.Errorf("start %d goes on behind row %d, want row %d or later", n, from, saved)
				}
				var pending bool
				if saved, pending = w.snapshotSaved(from + 1 + random.Int64N(rows/kills/2)); !pending {
					t.Fatalf("kill %d is behind the end of the snapshot", n)
				}
				w.kill(c)
			}
			c := w.start()
			if from := c.snapshotFrom(); from < saved {
				t.Errorf("the last start goes on behind row %d, want row %d or later", from, saved)
			}
			stream.await(t, 100)
			written := stream.end(t)
			w.wantEach(written, kept.once)
			if again := w.seriesLength() - written; again > rows/2 { // with exactly_once, marks of transactions
				t.Errorf("%d of %d rows came again after %d kills: the snapshot was begun anew", again, rows, kills)
			}
			c.stop()
		})
	}
}

// Rows of an interrupted snapshot are moved, so that nobody can tell the published ones.
// Exactly-once delivery ends, and the commands of its remedy bring each event once.
func TestE2ESnapshotThatCannotGoOnIsRepaired(t *testing.T) {
	const rows, later = 30_000, 100
	w := newWorld(t, options{exactlyOnce: true, unread: true, kafka: "max_buffered_bytes: 1MiB"})
	w.rewriteConfig("source:\n", "source:\n  snapshot: initial\n")
	insert := func(from, to int) {
		w.exec(fmt.Sprintf(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
			SELECT ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, 'order', 'key ' || n %% 5, 'Placed', n::text FROM generate_series(%d, %d) n`, from, to))
	}
	insert(1, rows)
	c := w.start()
	if _, pending := w.snapshotSaved(1000); !pending {
		t.Fatal("the kill is behind the end of the snapshot")
	}
	w.kill(c)
	w.exec(`VACUUM FULL outbox`)
	insert(rows+1, rows+later)
	if said := w.wantExit(2, w.config, "run"); !strings.Contains(said, " --accept-gap --yes` keeps the slot") {
		t.Errorf("run says %s", said)
	}
	w.wantExit(0, w.config, "setup", "--accept-gap", "--yes")
	c = w.start()
	if said := w.wantExit(0, w.config, "repair", "--publish", "--tmp", t.TempDir()); strings.Contains(said, "published 0,") {
		t.Errorf("repair says %s", said)
	}
	w.wantEach(rows+later, true)
	all := fmt.Sprintf("%d rows, %[1]d of them in Kafka, 0 missing, 0 unknown; %[1]d records read, 0 of them repetitions", rows+later)
	if said := w.wantExit(0, w.config, "verify"); !strings.Contains(said, all) {
		t.Errorf("verify says %s, want %s", said, all)
	}
	c.stop()
}

// snapshotSaved returns once a checkpoint has so many published rows of the snapshot, or
// more, or the snapshot is at its end.
func (w *world) snapshotSaved(rows int64) (published int64, pending bool) {
	w.t.Helper()
	if w.kept.Store == store.StoreFile || w.kept.Store == store.StorePostgres {
		return w.snapshotKept(rows)
	}
	w.broker.Consume(w.t, []string{w.checkpoints()}, func(all []*kgo.Record) bool {
		published, pending = 0, true
		for _, r := range all {
			var cp struct {
				Slot               string
				Snapshot, Creating bool
				Initial            *checkpoint.Initial
			}
			if err := json.Unmarshal(r.Value, &cp); err != nil || cp.Slot == "" || cp.Creating {
				continue // not a checkpoint
			}
			pending = cp.Snapshot
			if cp.Initial != nil {
				published, _ = cp.Initial.Progress()
			}
		}
		return published >= rows || !pending
	})
	return published, pending
}

// snapshotKept is snapshotSaved outside Kafka.
func (w *world) snapshotKept(rows int64) (published int64, pending bool) {
	w.t.Helper()
	o := store.DefaultOptions()
	o.Store, o.Path = w.kept.Store, w.kept.Path
	kept := must.Get(store.Open(w.t.Context(), o, strings.TrimPrefix(w.transactionalID(), "cdc-outbox/"), nil, broker.Tools{}, w.url))(w.t)
	defer kept.Close()
	await.Until(w.t, "rows of the snapshot in the checkpoint", func() bool {
		cp, ok, err := kept.Load(w.t.Context())
		must.OK(w.t, err)
		if !ok || cp.Creating {
			return false
		}
		if pending = cp.Snapshot; cp.Initial != nil {
			published, _ = cp.Initial.Progress()
		}
		return published >= rows || !pending
	})
	return published, pending
}

// snapshotFrom is how many rows were published when the process went on.
func (c *connector) snapshotFrom() int64 {
	c.t.Helper()
	const line = "publishing the rows that are in the outbox"
	c.awaitLog(line)
	var entry struct{ Published int64 }
	must.OK(c.t, json.Unmarshal([]byte(c.lineOf(`"`+line+`"`)), &entry))
	return entry.Published
}
