package admin

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// sendAs writes the records of rows as the connector does, with the row's transaction,
// after a change.
func (p *published) sendAs(topic string, change func(*kgo.Record), numbers ...int) {
	p.t.Helper()
	p.send(topic) // creates it
	client := p.broker.Client(p.t)
	defer client.Close()
	for _, n := range numbers {
		var value, xid string
		must.OK(p.t, p.conn.QueryRow(p.ctx(), `SELECT payload::text, xmin::text FROM outbox WHERE id = '`+eventID(n)+`'`).Scan(&value, &xid))
		rec := &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "k%d", n%3), Value: []byte(value), Headers: []kgo.RecordHeader{
			{Key: "id", Value: []byte(eventID(n))}, {Key: "eventType", Value: []byte("Placed")}, {Key: "cdc-lsn", Value: []byte("0/1")}, {Key: "cdc-xid", Value: []byte(xid)},
		}}
		if change != nil {
			change(rec)
		}
		must.OK(p.t, client.ProduceSync(p.ctx(), rec).FirstErr())
	}
}

func (p *published) contents() (*Verification, error) {
	return Verify(p.ctx(), p.Config, p.options(AuditOptions{Content: true}))
}

// Each part that differs is named, with the row that is still as it was published.
func TestVerifyContentNamesWhatDiffers(t *testing.T) {
	const topic = "outbox.event.order"
	p := newPublished(t)
	p.write(1, 2, 3, 4, 5, 6, 86401)
	p.sendAs(topic, nil, 1, 2, 86401)
	v := must.Get(Verify(p.ctx(), p.Config, p.options(AuditOptions{Content: true, IDs: []string{eventID(1), eventID(2)}})))(t)
	if c := v.Content; c.Compared != 2 || c.Equal != 2 || len(c.Differences) != 0 || c.Days[0].RowSum != c.Days[0].RecordSum {
		t.Errorf("%+v", c)
	}
	p.sendAs(topic, func(r *kgo.Record) { r.Value = nil }, 3)
	p.sendAs(topic, func(r *kgo.Record) { r.Key = []byte("other") }, 4)
	p.sendAs(topic, func(r *kgo.Record) { r.Headers[1].Value = []byte("Paid") }, 5)
	p.sendAs(topic, func(r *kgo.Record) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "cdc-repair", Value: []byte("t")})
	}, 6)
	v, err := p.contents()
	wantClass(t, err, failure.Loss, "the records of 3 of 7 events say something else than their rows")
	must.Contain(t, failure.RemedyOf(err), "replay --name NAME")
	var got []string
	for _, d := range v.Content.Differences {
		got = append(got, fmt.Sprint(d.ID, d.Parts, d.Row))
	}
	want := []string{
		fmt.Sprint(eventID(3), []string{"value"}, audit.Unchanged), fmt.Sprint(eventID(4), []string{"key"}, audit.Unchanged), fmt.Sprint(eventID(5), []string{"header eventType"}, audit.Unchanged),
	}
	if !slices.Equal(got, want) || v.Found != 7 || v.Content.Equal != 4 {
		t.Errorf("%q, want %q: %+v", got, want, v.Content)
	}
	if d := v.Content.Days; len(d) != 2 || d[0].Compared != 6 || d[0].Equal != 3 || d[0].RowSum == d[0].RecordSum || d[1].Compared != 1 || d[1].RowSum != d[1].RecordSum {
		t.Errorf("%+v", d)
	}
	var text strings.Builder
	must.OK(t, v.WriteText(&text))
	must.Contain(t, text.String(), "content: 7 compared, 4 as their rows, 3 different, 0 changed after publication; 2 tables and days", "public.outbox 2026-01-01: 3 of 6 differ",
		eventID(5)+`  key "k2"  `+topic+`  0/5  differs in header eventType`)

	p.sendAs(topic, nil, 3, 4, 5) // as by a replay
	must.Get(p.contents())(t)
}

// A row updated since is told from a wrong record, and changes the exit code, as its
// record may be wrong, too. An update of other columns changes nothing.
func TestVerifyContentKnowsRowsThatWereChanged(t *testing.T) {
	const topic = "outbox.event.order"
	p := newPublished(t)
	p.write(1, 2)
	p.sendAs(topic, nil, 1, 2)
	p.exec(`ALTER TABLE outbox ADD note text, REPLICA IDENTITY FULL`, `UPDATE outbox SET note = 'seen'`)
	must.Get(p.contents())(t)
	p.exec(`UPDATE outbox SET payload = '{}' WHERE id = '` + eventID(2) + `'`)
	v, err := p.contents()
	wantClass(t, err, failure.Config, "1 of 2 rows were changed since their events were published")
	if c := v.Content; c.Changed != 1 || c.Different != 0 || c.Differences[0].Row != audit.Changed || !slices.Equal(c.Differences[0].Parts, []string{"value"}) {
		t.Errorf("%+v", c)
	}
	p.exec(`UPDATE outbox SET payload = '{"n": 2}'`)
	p.sendAs("former", func(r *kgo.Record) { r.Headers[3].Key = "other" }, 1)
	p.sendAs(topic, func(r *kgo.Record) { r.Headers = r.Headers[:3] }, 1)
	if v, err = p.contents(); err != nil || v.Content.Equal != 2 {
		t.Errorf("%v, %+v", err, v.Content)
	}
	p.exec(`UPDATE outbox SET payload = '[]'`)
	p.sendAs(topic, func(r *kgo.Record) { r.Headers, r.Value = r.Headers[:3], []byte("x") }, 1)
	v, err = Verify(p.ctx(), p.Config, p.options(AuditOptions{Content: true, IDs: []string{eventID(1)}}))
	wantClass(t, err, failure.Config, "were changed since") // the first of its records tells
	if v.Content.Differences[0].Offset != 3 {
		t.Errorf("%+v", v.Content)
	}
}

// A row routed elsewhere since is missing in its topic, and named with the topic of
// its record. The record of another event with the same id does not count.
func TestVerifyContentNamesTheTopic(t *testing.T) {
	const topic = "outbox.event.order"
	p := newPublished(t)
	p.write(1, 2, 3)
	p.sendAs(topic, nil, 1, 2)
	p.sendAs(topic, func(r *kgo.Record) { r.Value = []byte("another event") }, 3)
	p.exec(`ALTER TABLE outbox REPLICA IDENTITY FULL`, `UPDATE outbox SET aggregatetype = 'bill' WHERE id <> '`+eventID(1)+`'`)
	v, err := p.contents()
	wantClass(t, err, failure.Loss, "2 of 3 events are not in Kafka")
	if c := v.Content; c.Elsewhere != 1 || len(c.Differences) != 1 || c.Differences[0].ID != eventID(2) || c.Differences[0].Topic != topic || !slices.Equal(c.Differences[0].Parts, []string{"topic"}) {
		t.Errorf("%+v", c)
	}
}

// A partition counts where the row names it.
func TestVerifyContentComparesThePartitionOfARow(t *testing.T) {
	const topic = "outbox.event.order"
	p := newPublished(t)
	p.exec(`ALTER TABLE outbox ADD place int`)
	p.broker.CreateTopic(t, topic, 2, nil)
	p.write(1, 2)
	for _, n := range []int{1, 2} { // as by another partitioner
		client := p.broker.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		must.OK(t, client.ProduceSync(p.ctx(), &kgo.Record{Topic: topic, Partition: int32(n - 1), Key: fmt.Appendf(nil, "k%d", n), Value: fmt.Appendf(nil, `{"n": %d}`, n),
			Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(eventID(n))}, {Key: "eventType", Value: []byte("Placed")}}}).FirstErr())
		client.Close()
	}
	must.Get(p.contents())(t)
	p.Event.Additional = []string{"place:partition"}
	p.exec(`ALTER TABLE outbox REPLICA IDENTITY FULL`, `UPDATE outbox SET place = 1`)
	v, err := p.contents()
	wantClass(t, err, failure.Loss, "the records of 1 of 2 events")
	if d := v.Content.Differences[0]; d.ID != eventID(1) || !slices.Equal(d.Parts, []string{"partition"}) || d.Row != audit.Untold {
		t.Errorf("%+v", d)
	}
}

// A dead letter says nothing of the event's record, and is counted apart.
func TestVerifyContentLeavesOutDeadLetters(t *testing.T) {
	p := newPublished(t)
	p.Errors.OnBadEvent = transform.BadEventDeadLetter
	p.write(1, 2)
	p.sendAs("outbox.event.order", nil, 1)
	p.sendAs(p.Errors.DeadLetterTopic, nil, 2)
	v := must.Get(p.contents())(t)
	if v.Found != 2 || v.Content.Compared != 1 {
		t.Errorf("%+v", v)
	}
	must.Contain(t, fmt.Sprint(v.Limits), "the contents of 1 events are not compared")
}

// Ids without a row are looked for where nothing is routed to any more, if route.topic
// names a single topic, and among dead letters; the report says where.
func TestVerifyLooksForIDsWithoutARow(t *testing.T) {
	p := newPublished(t)
	p.Route.Topic = "events"
	p.Errors.OnBadEvent = transform.BadEventDeadLetter
	p.write(1)
	p.sendAs("events", nil, 1)
	p.sendAs(p.Errors.DeadLetterTopic, nil, 1)
	p.exec(`DELETE FROM outbox`)
	v := must.Get(Verify(p.ctx(), p.Config, p.options(AuditOptions{})))(t)
	if v.Records != 2 {
		t.Errorf("%+v", v)
	}
	if want := []string{"events", p.Errors.DeadLetterTopic}; v.Alone != 2 || !slices.Equal(v.AloneIn, want) || v.AloneBeyond || v.AloneFirst[0].Topic == v.AloneFirst[1].Topic {
		t.Errorf("%+v", v)
	}
	p.Route.Topic = "events.${routedByValue}"
	v = must.Get(Verify(p.ctx(), p.Config, p.options(AuditOptions{Topics: []string{"nowhere"}})))(t)
	if want := []string{p.Errors.DeadLetterTopic}; v.Alone != 1 || !v.AloneBeyond || !slices.Equal(v.AloneIn, want) {
		t.Errorf("%+v", v)
	}
	var text strings.Builder
	must.OK(t, v.WriteText(&text))
	must.Contain(t, text.String(), "ids without a row were looked for in "+p.Errors.DeadLetterTopic+"; a topic that no row is routed to any more is not looked at")
}
