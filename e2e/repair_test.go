package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// The slot is dropped under load, and what was committed since is not in the log
// of any slot. Three commands bring all of it, in order per key: accept-gap, run,
// and repair beside it. A verify finds all there, and a second repair nothing to
// do.
func TestE2ERepairAfterALostSlot(t *testing.T) {
	for name, o := range map[string]options{
		"at_least_once": {unread: true},
		"exactly_once":  {unread: true, exactlyOnce: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, o)
			stream := w.loseSlot()
			stream.await(t, 200)
			w.wantExit(3, w.config, "run")
			w.wantExit(3, w.config, "verify")
			w.wantExit(0, w.config, "setup", "--accept-gap", "--yes")
			stream.await(t, 200)
			c := w.start()
			stream.await(t, 200)

			said := w.wantExit(0, w.config, "repair", "--publish", "--tmp", t.TempDir())
			if strings.Contains(said, "published 0,") || !strings.Contains(said, "dead-lettered 0, skipped 0") {
				t.Errorf("repair says %s", said)
			}
			written := stream.end(t)
			w.wantEach(written, o.exactlyOnce)
			all := fmt.Sprintf("%d rows, %[1]d of them in Kafka, 0 missing, 0 unknown", written)
			if o.exactlyOnce {
				all += fmt.Sprintf("; %d records read, 0 of them repetitions", written)
			}
			if said := w.wantExit(0, w.config, "verify"); !strings.Contains(said, all) || strings.Contains(said, "in Kafka only") {
				t.Errorf("verify says %s, want %s", said, all)
			}
			equal := fmt.Sprintf("content: %d compared, %[1]d as their rows, 0 different, 0 changed", written)
			if said := w.wantExit(0, w.config, "verify", "--content"); !strings.Contains(said, equal) {
				t.Errorf("verify --content says %s, want %s", said, equal)
			}
			if said := w.wantExit(0, w.config, "repair", "--publish"); !strings.Contains(said, " 0 missing,") {
				t.Errorf("a second repair says %s", said)
			}

			w.broker.CreateTopic(t, "replays", 1, nil)
			replay := []string{"replay", "--name", "again", "--key", "key 1", "--to", "replays"}
			keyed := w.count("SELECT count(*) FROM outbox WHERE aggregateid = 'key 1'")
			if said := w.wantExit(0, w.config, replay...); !strings.Contains(said, fmt.Sprintf("to publish in topic replays: %d\n", keyed)) {
				t.Errorf("replay says %s", said)
			}
			if said := w.wantExit(0, w.config, append(replay, "--publish")...); !strings.Contains(said, fmt.Sprintf("published %d,", keyed)) {
				t.Errorf("replay --publish says %s", said)
			}
			if n := len(w.broker.Consume(t, []string{"replays"}, kafkatest.Count(keyed))); n != keyed {
				t.Errorf("the replay has %d records, want %d", n, keyed)
			}
			w.broker.CreateTopic(t, "copies", 1, nil)
			w.exec(`DELETE FROM outbox WHERE aggregateid = 'key 2'`)
			if said := w.wantExit(0, w.config, "verify"); !strings.Contains(said, "in Kafka only: ") {
				t.Errorf("verify of deleted rows says %s", said)
			}
			copied := []string{"replay", "--name", "again", "--key", "key 2", "--from-topic", topicOf("order"), "--to", "copies", "--publish"}
			deleted := (written + 3) / 5
			if said := w.wantExit(0, w.config, copied...); !strings.Contains(said, fmt.Sprintf("published %d,", deleted)) {
				t.Errorf("replay of %d deleted rows says %s", deleted, said)
			}
			if said := w.wantExit(0, w.config, copied...); !strings.Contains(said, "published 0,") {
				t.Errorf("the same replay again says %s", said)
			}
			c.stop()
		})
	}
}

// inserts are events that are committed one after the other, from 1 on.
type inserts struct {
	written atomic.Int64
	stop    context.CancelFunc
	ended   sync.WaitGroup
	err     error
}

// loseSlot kills a connector under load, and drops the slot. The inserts go on.
func (w *world) loseSlot() *inserts {
	w.t.Helper()
	c := w.start()
	stream := w.insertAlways()
	w.broker.Consume(w.t, []string{topicOf("order")}, kafkatest.Count(100))
	c.kill()
	w.dropSlot(w.slot)
	return stream
}

// insertAlways inserts events until end, by a connection of its own. The keys are
// five.
func (w *world) insertAlways() *inserts { return w.insertFrom(1) }

// insertFrom is insertAlways from event first on.
func (w *world) insertFrom(first int64) *inserts {
	conn := connect(w.t, w.url)
	ctx, stop := context.WithCancel(context.Background())
	w.t.Cleanup(stop)
	s := &inserts{stop: stop}
	s.ended.Go(func() {
		for n := first; ctx.Err() == nil; n++ {
			_, s.err = conn.Exec(context.Background(), fmt.Sprintf(
				`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES ('%s', 'order', 'key %d', 'Placed', '%d')`, eventID(int(n)), n%5, n))
			if s.err != nil {
				return
			}
			s.written.Store(n)
		}
	})
	return s
}

// await returns once so many events more are committed.
func (s *inserts) await(t *testing.T, more int64) {
	t.Helper()
	want := s.written.Load() + more
	await.Until(t, "events are inserted", func() bool { return s.written.Load() >= want })
}

func (s *inserts) end(t *testing.T) (written int) {
	t.Helper()
	s.stop()
	s.ended.Wait()
	must.OK(t, s.err)
	return int(s.written.Load())
}

// wantEach wants events 1 to written in the topic, each once or, not exactly, at
// least once. Those that repair published are in order per key, and so are the
// others.
func (w *world) wantEach(written int, exactly bool) {
	w.t.Helper()
	seen, counted := map[string]int{}, 0
	records := w.broker.Consume(w.t, []string{topicOf("order")}, func(all []*kgo.Record) bool {
		for _, r := range all[counted:] {
			seen[string(r.Value)]++
		}
		counted = len(all)
		return len(seen) >= written
	})
	if exactly && len(records) != written {
		w.t.Errorf("%d records of %d events, want each once", len(records), written)
	}
	last := map[string]int{}
	for _, r := range records {
		var n int
		must.Get(fmt.Sscan(string(r.Value), &n))(w.t)
		way := fmt.Sprintf("%s, repaired: %v", r.Key, r.Headers[len(r.Headers)-1].Key == "cdc-repair")
		if n <= last[way] && exactly {
			w.t.Errorf("%s: event %d comes after %d", way, n, last[way])
		}
		last[way] = max(last[way], n)
	}
}
