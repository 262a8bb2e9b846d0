package stream

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// withKafka returns a broker, with a sink and a checkpoint store.
func (d *database) withKafka() (*kafkatest.Broker, *sink.Kafka, checkpoint.Store) {
	d.t.Helper()
	b := kafkatest.Start(d.t)
	b.CreateTopic(d.t, "outbox.event.order", 1, nil)
	out, store := d.useBrokers(b.Brokers)
	return b, out, store
}

// useBrokers returns a sink and a checkpoint store of the brokers.
func (d *database) useBrokers(brokers []string) (*sink.Kafka, checkpoint.Store) {
	d.t.Helper()
	d.kafka.Brokers = brokers
	opts := must.Get(sink.ClientOpts(*d.kafka))(d.t)
	store := must.Get(store.NewKafka(d.t.Context(), opts, d.opts.Checkpoint.Topic, d.opts.Slot, broker.Tools{}))(d.t)
	d.t.Cleanup(store.Close)
	return d.kafkaSink(), store
}

// checkpointTopic is the topic of the store.
func (d *database) checkpointTopic() string { return store.Topic(d.opts.Checkpoint.Topic, d.opts.Slot) }

// kafkaSink returns a sink until the end of the test. It is of no use after a failed
// delivery.
func (d *database) kafkaSink() *sink.Kafka {
	d.t.Helper()
	out := must.Get(sink.NewKafka(*d.kafka, sink.WithLogger(zap.NewNop()), sink.WithDeadLetterTopic(d.letters)))(d.t)
	d.t.Cleanup(out.Close)
	return out
}

func (d *database) published(b *kafkatest.Broker, n int) (ids []string) {
	for _, r := range b.Consume(d.t, []string{"outbox.event.order"}, kafkatest.Count(n)) {
		i := slices.IndexFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == "id" })
		ids = append(ids, string(r.Headers[i].Value))
	}
	return ids
}

// Failure modes 14 and 25: the broker is away, and the server hears from us all the same.
// The intake blocks at its bound, the connection to PostgreSQL stays, and a stop or a
// question about health is answered. Then everything arrives once.
func TestE2EBrokerOutage(t *testing.T) {
	d := outbox(t)
	d.opts.MaxBufferedBytes = 100_000
	b, out, s := d.withKafka()
	i := d.start(s, out).streams()
	d.insert(5, 1)
	eventually(t, "the first events", func() bool { i.metrics.mu.Lock(); defer i.metrics.mu.Unlock(); return i.metrics.published == 5 })
	d.heard()
	pid := d.walsender()

	b.Stop(t)
	d.insert(3000, 100)
	i.full()
	heard := map[time.Time]bool{}
	eventually(t, "more replies", func() bool {
		if got := i.metrics.inFlight(); got > 100_000 {
			t.Fatalf("%d bytes in flight, the bound is 100000", got)
		}
		if got := d.walsender(); got != pid {
			t.Fatalf("the walsender changed from %d to %d", pid, got)
		}
		_ = i.health.Status() // must not block
		heard[d.replied(pid)] = true
		return len(heard) > 5
	})
	b.Resume(t)
	if got := d.published(b, len(d.ids)); !slices.Equal(got, d.ids) {
		t.Errorf("the topic holds %d records, want %d: %v", len(got), len(d.ids), abbreviated(got))
	}
	if got := i.metrics.reconnected(); got != 0 {
		t.Errorf("%d reconnects to PostgreSQL", got)
	}
	i.stop()
}

// replied is when the server last had a status update of the walsender's client.
func (d *database) replied(walsender int) (at time.Time) {
	d.t.Helper()
	must.OK(d.t, d.conn.QueryRow(d.t.Context(), "SELECT reply_time FROM pg_stat_replication WHERE pid = $1", walsender).Scan(&at))
	return at
}

// Failure modes 25 and 38: a stop during an outage, after a reconnect waiting for the
// broker, ends after the drain's timeout.
func TestE2EStopDuringABrokerOutage(t *testing.T) {
	d := outbox(t)
	d.opts.DrainTimeout = 100 * time.Millisecond
	d.limits.close = usual.close // the last checkpoint cannot be saved
	b, out, s := d.withKafka()
	i := d.start(s, out).streams()
	d.insert(5, 1)
	b.Stop(t)
	d.insert(5, 1)
	eventually(t, "events in flight", func() bool { return i.status().InFlightEvents > 0 })
	d.exec("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '" + d.opts.Slot + "'")
	i.reconnects()
	i.stop() // fails if the stop waits for the broker
}

// Failure mode 31.
func TestDeadLetterThatCannotBeWrittenHalts(t *testing.T) {
	d := outbox(t)
	d.opts.OnBadEvent = transform.BadEventDeadLetter
	d.letters = "no/such topic"
	_, out, s := d.withKafka()
	i := d.start(s, out).streams()
	d.exec(`INSERT INTO outbox VALUES ('bad', 'order', NULL, 'Placed', '{}')`)
	const halted = `event bad: write dead letter`
	i.wantEnd(failure.Config, halted)
	d.start(s, d.kafkaSink()).wantEnd(failure.Config, halted) // neither checkpoint nor slot has passed the event
}

// Failure mode 36.
func TestCheckpointTopicDeletedWhileRunning(t *testing.T) {
	d := outbox(t)
	b, out, s := d.withKafka()
	i := d.start(s, out).streams()
	d.insert(1, 1)
	admin := kadm.NewClient(b.Client(t))
	must.Get(admin.DeleteTopics(t.Context(), d.checkpointTopic()))(t)
	eventually(t, "the end of Run", func() bool {
		d.insert(1, 1) // a position to save
		return i.ended()
	})
	i.wantEnd(failure.Loss, `topic was deleted`)
	if strings.Contains(i.err.Error(), "\n") {
		t.Errorf("the error has several lines: %q", i.err)
	}
}
