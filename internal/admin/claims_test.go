package admin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/claimcheck"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// keepClaims has large values kept in a table, for an hour.
func (p *published) keepClaims() *claimcheck.Keeper {
	p.t.Helper()
	p.ClaimCheck.Store, p.ClaimCheck.Above, p.ClaimCheck.Retention = claimcheck.StoreTable, 2<<10, time.Hour
	p.exec(claimcheck.TableSQL(must.Get(pg.ParseTable(p.ClaimCheck.Table.Name))(p.t))...)
	k := must.Get(wiring.Values(p.Config, nil))(p.t)
	p.t.Cleanup(k.Close)
	return k
}

// age makes all values older than the retention.
func (p *published) age() { p.exec(`UPDATE cdc_outbox_claims SET stored = now() - interval '2 hours'`) }

// wantClaims deletes old values, and wants those of the events, and no other.
func (p *published) wantClaims(k *claimcheck.Keeper, events ...string) {
	p.t.Helper()
	if _, _, err := k.Sweep(p.ctx()); err != nil {
		p.t.Fatal(err)
	}
	var names []string
	must.OK(p.t, p.conn.QueryRow(p.ctx(), `SELECT coalesce(array_agg(split_part(id, '/', 1) ORDER BY id), '{}') FROM cdc_outbox_claims`).Scan(&names))
	if !slices.Equal(names, events) {
		p.t.Errorf("the store has the values of %q, want %q", names, events)
	}
}

// referring reads records, and wants a reference in those of the events.
func (p *published) referring(topic string, n int, events ...string) {
	p.t.Helper()
	var got []string
	for _, r := range p.broker.Consume(p.t, []string{topic}, kafkatest.Count(n)) {
		if _, ok := transform.ReferenceOf(r); ok {
			id, _ := transform.Header(r.Headers, transform.HeaderID)
			got = append(got, string(id))
		}
	}
	if slices.Sort(got); !slices.Equal(got, events) {
		p.t.Errorf("records with references: %q, want %q", got, events)
	}
}

// A record published again refers to a value with the whole retention ahead: a redrive, or a
// replay of a topic, may come when a value is about to be deleted, or is gone.
func TestValuesLiveForRecordsPublishedAgain(t *testing.T) {
	large := strings.Repeat("x", 5000)
	for _, mode := range []string{sink.DeliveryAtLeastOnce, sink.DeliveryExactlyOnce} {
		t.Run("redrive "+mode, func(t *testing.T) {
			b := newBuried(t)
			b.Sink.Kafka.Delivery = mode
			k := b.keepClaims()
			out := must.Get(sink.NewKafka(*b.Sink.Kafka, sink.WithDeadLetterTopic(b.Errors.DeadLetterTopic), sink.WithValues(k)))(t)
			defer out.Close()
			for _, id := range []string{"a", "b", "c"} {
				ev := &transform.Event{Table: "public.outbox", ID: []byte(id), CommitTime: time.Unix(1700000000, 0), Record: kgo.Record{
					Topic: orders, Key: []byte("k" + id), Value: []byte(large + id), Partition: transform.PartitionByKey, Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}},
				}}
				must.OK(t, out.DeadLetter(b.ctx(), ev, &transform.BadEvent{Reason: transform.ReasonRejectedByBroker, Err: fmt.Errorf("no")}))
			}
			b.age()
			b.exec(`DELETE FROM cdc_outbox_claims WHERE id LIKE 'b/%'`)
			r, err := Redrive(b.ctx(), b.Config, RedriveOptions{LetterOptions: b.options(LetterOptions{IDs: []string{"a", "b"}}), Publish: true})
			if err == nil || r == nil || r.Published != 1 || len(r.Refusals) != 1 || !strings.Contains(r.Refusals[0].Why, "not in the claim store") {
				t.Fatalf("%v: %+v", err, r)
			}
			b.referring(orders, 1, "a")
			b.wantClaims(k, "a")
		})
		t.Run("replay of a topic "+mode, func(t *testing.T) {
			p := newPublished(t)
			p.Sink.Kafka.Delivery = mode
			p.Errors.OnBadEvent = transform.BadEventSkip
			p.broker.CreateTopic(t, "source", 1, nil)
			k := p.keepClaims()
			out := must.Get(sink.NewKafka(*p.Sink.Kafka, sink.WithValues(k)))(t)
			defer out.Close()
			for i, id := range []string{"a", "b", "c", "small"} {
				value := large + id
				if id == "small" {
					value = id
				}
				rec := past{id, "k", value, i}.record("source", i)
				ev := &transform.Event{ID: []byte(id), Record: *rec}
				ev.Record.Partition = transform.PartitionByKey
				must.OK(t, out.Deliver(p.ctx(), []*transform.Event{ev}, nil))
			}
			p.age()
			p.exec(`DELETE FROM cdc_outbox_claims WHERE id LIKE 'b/%'`)
			r := must.Get(p.again(true, TopicReplayOptions{From: "source", To: "elsewhere", IDs: []string{"a", "b", "small"}}))(t)
			if r.Published != 2 || r.Skipped != 1 {
				t.Errorf("%+v", r)
			}
			p.referring("elsewhere", 2, "a")
			p.wantClaims(k, "a")
		})
		t.Run("replay and repair of rows "+mode, func(t *testing.T) {
			p := newPublished(t)
			p.Sink.Kafka.Delivery = mode
			k := p.keepClaims()
			p.write(1, 2)
			p.exec(`UPDATE outbox SET payload = jsonb_build_object('x', repeat('x', 5000))`)
			p.send(orders, 1)
			if r := p.mend(AuditOptions{}); r.Published != 1 {
				t.Errorf("%+v", r)
			}
			p.referring(orders, 2, eventID(2))
			p.age()
			r, err := Replay(p.ctx(), p.Config, ReplayOptions{AuditOptions: p.options(AuditOptions{}), Name: "again", Publish: true})
			if err != nil || r.Published != 2 {
				t.Errorf("%v: %+v", err, r)
			}
			both := []string{eventID(1), eventID(2)}
			slices.Sort(both)
			p.wantClaims(k, both...)
		})
	}
}
