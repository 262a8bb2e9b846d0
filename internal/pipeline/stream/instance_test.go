package stream

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/phase"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// instance is a pipeline in the background.
type instance struct {
	t       *testing.T
	metrics *counts
	health  *Health
	source  *source
	looked  func() pg.LSN // the monitor's last look saw everything before
	horizon func() uint64 // of the next checkpoint
	logs    *observer.ObservedLogs
	limit   int64 // of bytes in flight
	cancel  context.CancelFunc
	hurry   func() // takes the patience of a stop
	done    chan struct{}
	err     error // once done
}

// run starts an instance with the store and the gate all share.
func (d *database) run() *instance {
	d.t.Helper()
	return d.start(d.store, d.gate)
}

// start runs a pipeline of the database into the sink, until the end of the test at the
// latest.
func (d *database) start(s checkpoint.Store, out sink.Sink) *instance {
	d.t.Helper()
	return d.startWith(Parts{Store: s, Sink: out})
}

// pipeline is a pipeline of the database, not running yet. Of the parts only store, sink or
// transactions, and log are given.
func (d *database) pipeline(p Parts, m *counts) *Pipeline {
	d.t.Helper()
	p.Options, p.Router, p.Metrics, p.Kafka = d.opts, must.Get(transform.New(d.event, d.route))(d.t), m, delivery.NewDownstream(m)
	return newPipeline(p, d.limits)
}

// startWith is start; of the parts only store and sink, or transactions, are given.
func (d *database) startWith(p Parts) *instance {
	d.t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	i := &instance{t: d.t, metrics: &counts{}, logs: logs, limit: d.opts.MaxBufferedBytes, done: make(chan struct{})}
	p.Log = zap.New(core)
	r := d.pipeline(p, i.metrics)
	i.health, i.source = r.Health(), r.source
	i.looked = func() pg.LSN { return pg.LSN(r.source.whole.Load()) }
	i.horizon = func() uint64 {
		k := r.checkpointer
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.passed
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(d.t.Context()))
	i.cancel = cancel
	ctx, i.hurry = session.WithHaste(ctx)
	go func() {
		defer close(i.done)
		i.err = r.Run(ctx)
	}()
	d.t.Cleanup(func() {
		cancel()
		<-i.done
		i.followsTheTable()
		if d.t.Failed() {
			d.t.Logf("Run = %v", i.err)
			for _, entry := range logs.All() {
				d.t.Log(entry.Time.Format("05.000"), entry.Level, entry.Message, entry.ContextMap())
			}
		}
	})
	return i
}

// followsTheTable checks the phases in the log of an ended pipeline.
func (i *instance) followsTheTable() {
	i.t.Helper()
	var trace phase.Trace
	for _, entry := range i.logs.FilterMessage("phase").All() {
		fields := entry.ContextMap()
		if err := trace.Change(fmt.Sprint(fields["from"]), fmt.Sprint(fields["to"])); err != nil {
			i.t.Error(err)
		}
	}
	if trace.Now != phase.Ended {
		i.t.Errorf("the last phase is %s", trace.Now)
	}
	for _, entry := range i.logs.All() {
		if text := fmt.Sprint(entry.ContextMap()["error"]); strings.Contains(text, "please report this") {
			i.t.Errorf("%s: %s", entry.Message, text)
		}
	}
}

// wait returns Run's error once Run ends by itself.
func (i *instance) wait() error {
	i.t.Helper()
	eventually(i.t, "the end of Run", i.ended)
	return i.err
}

// ended tells whether Run has.
func (i *instance) ended() bool {
	select {
	case <-i.done:
		return true
	default:
		return false
	}
}

// stop ends the instance, as by SIGTERM, without an error.
func (i *instance) stop() {
	i.t.Helper()
	i.cancel()
	if err := i.wait(); err != nil {
		i.t.Errorf("Run = %v after a stop, want nil", err)
	}
}

func (i *instance) role() string { return i.status().Role }

// streams returns once the instance reads the slot.
func (i *instance) streams() *instance {
	i.t.Helper()
	eventually(i.t, "the instance to stream", func() bool { return i.role() == session.Active })
	return i
}

// standsBy returns once the instance waits for the slot.
func (i *instance) standsBy() *instance {
	i.t.Helper()
	eventually(i.t, "the spare to stand by", func() bool { return i.role() == session.Standby })
	return i
}

// ready tells whether the instance is.
func (i *instance) ready() bool { ok, _ := i.health.Ready(); return ok }

// status is the content of /status.
func (i *instance) status() Status { return i.health.Status().(Status) }

// inFlight returns once so many events are in flight.
func (i *instance) inFlight(n int64) {
	i.t.Helper()
	eventually(i.t, "the events to be taken in", func() bool { return i.status().InFlightEvents == n })
}

// full returns once the queue holds nearly as much as MaxBufferedBytes.
func (i *instance) full() {
	i.t.Helper()
	eventually(i.t, "a full buffer", func() bool { return i.metrics.inFlight() > i.limit-i.limit/10 })
}

// reconnects returns once a session has been tried again.
func (i *instance) reconnects() {
	i.t.Helper()
	eventually(i.t, "a reconnect", func() bool { return i.metrics.reconnected() > 0 })
}

// wantEnd checks that Run ends with an error of the class, with text and remedy for the
// operator.
func (i *instance) wantEnd(class failure.Class, text string) {
	i.t.Helper()
	err := i.wait()
	if err == nil || failure.ClassOf(err) != class || !matches(text, err.Error()) {
		i.t.Errorf("Run = %v (class %d), want class %d and a text like %q", err, failure.ClassOf(err), class, text)
		return
	}
	if failure.RemedyOf(err) == "" {
		i.t.Errorf("Run = %v, without a remedy", err)
	}
	i.t.Logf("an operator reads: %v", err)
}

func mustParse(t *testing.T, text string) *url.URL {
	t.Helper()
	return must.Get(url.Parse(text))(t)
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, met func() bool) {
	t.Helper()
	await.Until(t, what, met)
}

// arrive waits for so many records.
func arrive(t *testing.T, to *topic, n int) {
	t.Helper()
	await.Until(t, fmt.Sprintf("%d records", n), func() bool { return len(to.all()) >= n })
}

// arrive waits for as many records as insert has committed events.
func (d *database) arrive() {
	d.t.Helper()
	arrive(d.t, d.topic, len(d.ids))
}

// last waits until the last event inserted is the topic's last.
func (d *database) last() {
	d.t.Helper()
	eventually(d.t, "the last event", func() bool {
		got := d.topic.ids()
		return len(got) > 0 && got[len(got)-1] == d.ids[len(d.ids)-1]
	})
}

// publish inserts and waits until everything inserted has arrived.
func (d *database) publish(n, per int) {
	d.t.Helper()
	d.insert(n, per)
	d.arrive()
}

// wantOnce checks that the topic holds everything inserted, once and in order; wantAll,
// at least once.
func (d *database) wantOnce() { d.t.Helper(); wantOnce(d.t, d.topic, d.ids) }
func (d *database) wantAll()  { d.t.Helper(); wantAll(d.t, d.topic, d.ids) }

// finish stops an instance and wants everything once.
func (d *database) finish(i *instance) {
	d.t.Helper()
	i.stop()
	d.wantOnce()
}

// wantOnce checks that the topic holds exactly the events, in their order.
func wantOnce(t *testing.T, to *topic, ids []string) {
	t.Helper()
	if got := to.ids(); !slices.Equal(got, ids) {
		t.Errorf("the topic holds %d records, want %d: %v", len(got), len(ids), abbreviated(got))
	}
}

// wantAll checks that the topic holds each event at least once.
func wantAll(t *testing.T, to *topic, ids []string) {
	t.Helper()
	got := to.ids()
	for _, id := range ids {
		if !slices.Contains(got, id) {
			t.Errorf("event %s is lost; the topic holds %v", id, abbreviated(got))
			return
		}
	}
}

func abbreviated(ids []string) []string { return ids[:min(len(ids), 50)] }

// watch checks, on a separate connection and until the returned function is called, that
// the slot's confirmed position is never beyond the first event without ack.
func (d *database) watch(g *gate) (stop func()) {
	d.t.Helper()
	look := &database{t: d.t, url: d.url, opts: d.opts, event: d.event, route: d.route}
	look.connect()
	quit := make(chan struct{})
	var watching sync.WaitGroup
	looks := 0
	watching.Go(func() {
		poll := time.NewTicker(2 * time.Millisecond)
		defer poll.Stop()
		for {
			select {
			case <-quit:
				return
			case <-poll.C:
			}
			var text string
			err := look.conn.QueryRow(d.t.Context(), "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", d.opts.Slot).Scan(&text)
			first, waiting := g.unacked() // after the slot: events waiting now waited then
			if err != nil || !waiting {
				continue
			}
			looks++
			if confirmed, err := pglogrepl.ParseLSN(text); err != nil || confirmed > first {
				d.t.Errorf("the slot is confirmed up to %s, but an event of %s has no ack (%v)", confirmed, first, err)
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		close(quit)
		watching.Wait()
		d.t.Logf("looked at the slot %d times while an event waited for its ack", looks)
	})
}

// passes waits until everything committed by now is confirmed.
func (d *database) passes(what string) {
	d.t.Helper()
	end := d.lsn("SELECT pg_current_wal_flush_lsn()")
	eventually(d.t, what+" to be passed over", func() bool { return d.confirmed() >= end })
}

// crash ends the server, as in a crash, and starts it again. It returns i, or another
// instance if i is to be restarted.
func (d *database) crash(server *pgtest.Server, i *instance, restarted bool) *instance {
	d.t.Helper()
	server.Stop(d.t, pgtest.Immediate)
	if restarted {
		i.stop()
	}
	server.Resume(d.t)
	d.connect()
	if restarted {
		i = d.run().streams()
	}
	return i
}
