package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

func TestTailFromTable(t *testing.T) {
	f := sound(t)
	f.exec(`INSERT INTO outbox VALUES
		('0198b2c0-0000-7000-8000-000000000001', 'order', '42', 'Placed', '{"n": 1}'),
		('0198b2c0-0000-7000-8000-000000000002', 'order', '',   'Placed', '{"n": 2}')`)

	var out bytes.Buffer
	must.OK(t, Tail(f.ctx(), f.Config, TailOptions{FromTable: true, Out: &out, Notes: io.Discard}))
	got := out.String()
	for _, want := range []string{
		"outbox.event.order  key 42\n",
		"    id=0198b2c0-0000-7000-8000-000000000001  eventType=Placed  cdc-lsn=",
		"    {\"n\": 1}\n",
		"BAD EVENT null_key",
	} {
		must.Contain(t, got, want)
	}

	out.Reset()
	must.OK(t, Tail(f.ctx(), f.Config, TailOptions{FromTable: true, JSON: true, Limit: 1, Out: &out, Notes: io.Discard}))
	var line struct{ Topic, Key, Value, ID string }
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	if line.Topic != "outbox.event.order" || line.Key != "42" || line.Value != `{"n": 1}` {
		t.Errorf("got %+v", line)
	}
}

// Tail reads beside a connector, prints everything committed, and leaves
// neither a slot nor a trace in the connector's.
func TestTailFromTheStream(t *testing.T) {
	f := sound(t)
	f.exec(`CREATE TABLE other (id int)`, `ALTER PUBLICATION cdc_outbox ADD TABLE other`)
	f.hold()
	before, _ := f.slot()
	// Another tail in a container has the same process id.
	taken := fmt.Sprintf("%s_tail_%d", f.Source.Slot, os.Getpid())
	f.exec(fmt.Sprintf(`SELECT pg_create_logical_replication_slot('%s', 'pgoutput')`, taken))
	defer f.exec(fmt.Sprintf(`SELECT pg_drop_replication_slot('%s')`, taken))

	var out bytes.Buffer
	done := f.tail(f.ctx(), TailOptions{Limit: 1, Out: &out})
	f.exec(`INSERT INTO other VALUES (1)`)
	f.insert("order", "7", "{}")
	must.OK(t, <-done)
	must.Contain(t, out.String(), "outbox.event.order  key 7\n")
	after, _ := f.slot()
	if after.ConfirmedFlush != before.ConfirmedFlush {
		t.Errorf("the connector's slot moved from %s to %s", before.ConfirmedFlush, after.ConfirmedFlush)
	}
}

// A transaction published as a whole tells the number of its events; a
// transaction too large for that does not, and is printed nevertheless.
func TestTailSaysHowManyEventsATransactionHas(t *testing.T) {
	f := sound(t)
	f.Sink = config.Sink{Kafka: sink.DefaultOptions()}
	f.Sink.Kafka.TransactionBoundaries, f.Sink.Kafka.MaxBufferedBytes = true, 4096
	three := func(payload string) {
		f.exec("BEGIN")
		for range 3 {
			f.insert("order", "7", payload)
		}
		f.exec("COMMIT")
	}
	var out bytes.Buffer
	done := f.tail(f.ctx(), TailOptions{Limit: 7, Out: &out})
	three("{}")
	three(`{"x": "` + strings.Repeat("x", 2000) + `"}`)
	f.insert("order", "8", "{}")
	must.OK(t, <-done)
	for header, want := range map[string]int{"key 7\n": 6, "cdc-tx-total=3": 3, "cdc-tx-total=1": 1, "cdc-tx-total": 4} {
		if got := strings.Count(out.String(), header); got != want {
			t.Errorf("%q is there %d times, want %d", header, got, want)
		}
	}
}

func TestTailEndsWithItsContext(t *testing.T) {
	f := sound(t)
	ctx, cancel := context.WithCancel(f.ctx())
	done := f.tail(ctx, TailOptions{Out: io.Discard})
	cancel()
	if err := <-done; err != nil {
		t.Errorf("got %v", err)
	}
}

func TestTailRefuses(t *testing.T) {
	f := empty(t)
	opts := TailOptions{Out: io.Discard, Notes: io.Discard}
	wantClass(t, Tail(f.ctx(), f.Config, opts), failure.Config, "table public.outbox does not exist")
	f.setup()
	f.exec(`DROP PUBLICATION cdc_outbox`)
	wantClass(t, Tail(f.ctx(), f.Config, opts), failure.Config, "publication", "does not exist")
}

// tail runs Tail in the background and returns once Tail prints everything
// committed from now on. Tail ends with ctx at the latest.
func (f *fixture) tail(ctx context.Context, opts TailOptions) (done <-chan error) {
	f.t.Helper()
	notes, w := io.Pipe()
	opts.Notes = w
	ended := make(chan error, 1)
	go func() {
		err := Tail(ctx, f.Config, opts)
		_ = w.CloseWithError(err)
		ended <- err
	}()
	waitFor(f.t, notes, "events committed after")
	go func() { _, _ = io.Copy(io.Discard, notes) }()
	return ended
}

// waitFor reads lines up to a line with the words.
func waitFor(t *testing.T, r io.Reader, words string) {
	t.Helper()
	buf, seen := make([]byte, 256), ""
	for !strings.Contains(seen, words) {
		n, err := r.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, seen)
		}
		seen += string(buf[:n])
	}
}

// stream reads the slot's rows until fn returns false.
func (f *fixture) stream(fn func(*pg.Row) bool) {
	f.t.Helper()
	f.streamChanges(func(msg *wal.Message) bool { return msg.Kind != wal.Insert || fn(&msg.Row) })
}

// streamChanges reads from the slot until fn returns false, confirming nothing.
func (f *fixture) streamChanges(fn func(*wal.Message) bool) {
	f.t.Helper()
	s := f.open()
	defer f.leave(s)
	for {
		msg := must.Get(s.Next(f.ctx()))(f.t)
		if !fn(msg) {
			return
		}
	}
}
