package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// buried is a fixture with a cluster, whose dead letters the sink has written.
type buried struct {
	*published
	t *testing.T
}

func newBuried(t *testing.T) *buried {
	b := &buried{newPublished(t), t}
	b.Errors.OnBadEvent = transform.BadEventDeadLetter
	b.broker.CreateTopic(t, b.Errors.DeadLetterTopic, 2, nil)
	return b
}

// letter is an event for a dead letter.
type letter struct {
	id, topic, key, value string
	reason                transform.Reason
	headers               []kgo.RecordHeader
}

// bury writes dead letters as a connector does.
func (b *buried) bury(letters ...letter) {
	b.t.Helper()
	out := must.Get(sink.NewKafka(*b.Sink.Kafka, sink.WithDeadLetterTopic(b.Errors.DeadLetterTopic)))(b.t)
	defer out.Close()
	for i, l := range letters {
		ev := &transform.Event{
			Table: "public.outbox", ID: []byte(l.id), Position: pg.Position{CommitLSN: 16, Seq: uint32(i)}, CommitTime: time.Unix(1700000000, 0),
			Record: kgo.Record{
				Topic: l.topic, Key: bytesOf(l.key), Value: bytesOf(l.value), Partition: transform.PartitionByKey,
				Headers: append([]kgo.RecordHeader{{Key: transform.HeaderID, Value: []byte(l.id)}}, l.headers...),
			},
		}
		must.OK(b.t, out.DeadLetter(b.ctx(), ev, &transform.BadEvent{Reason: l.reason, Err: errors.New("as the test says")}))
	}
}

// bytesOf is a text, or null.
func bytesOf(text string) []byte {
	if text == "null" {
		return nil
	}
	return []byte(text)
}

func (b *buried) options(opts LetterOptions) LetterOptions {
	opts.Timeout = patience
	if opts.Notes == nil {
		opts.Notes = io.Discard
	}
	if opts.Limit == 0 {
		opts.Limit = 100
	}
	return opts
}

func (b *buried) list(opts LetterOptions) *DeadLetters {
	b.t.Helper()
	return must.Get(ListDeadLetters(b.ctx(), b.Config, b.options(opts)))(b.t)
}

// place is that of the letter with the id.
func (b *buried) place(id string) *LetterPlace {
	b.t.Helper()
	found := b.list(LetterOptions{IDs: []string{id}}).Newest
	if len(found) == 0 {
		b.t.Fatalf("there is no letter of %s", id)
	}
	return &found[len(found)-1].LetterPlace
}

func ids(letters []DeadLetter) (ids []string) {
	for _, l := range letters {
		ids = append(ids, l.ID)
	}
	return ids
}

const orders = "outbox.event.order"

func TestListDeadLetters(t *testing.T) {
	b := newBuried(t)
	b.Errors.DeadLetterTopic = "single" // so that letters of a millisecond have an order
	b.send(b.Errors.DeadLetterTopic, 1) // a record of others
	b.bury(
		letter{"a", orders, "k0", "1", transform.ReasonMissingTopic, nil},
		letter{"b", "other", "k1", "2", transform.ReasonRecordTooLarge, nil},
	)
	after := time.Now().Truncate(time.Millisecond).Add(time.Millisecond)
	await.Until(t, "the next millisecond", func() bool { return time.Now().After(after) })
	b.bury(letter{"c", orders, "k2", "3", transform.ReasonMissingTopic, nil}, letter{"d", "", "k3", "4", transform.ReasonNullRoute, nil})
	all := b.list(LetterOptions{})
	if got := ids(all.Newest); !slices.Equal(got, []string{"a", "b", "c", "d"}) || all.Letters != 4 || all.Others != 1 ||
		fmt.Sprint(all.Reasons) != "map[missing_topic:2 null_route:1 record_too_large:1]" {
		t.Errorf("%+v", all)
	}
	if l := all.Newest[0]; l.Topic != orders || l.Key != "k0" || l.Reason != "missing_topic" || l.Error != "as the test says" || l.Cut {
		t.Errorf("%+v", l)
	}
	for name, c := range map[string]struct {
		opts LetterOptions
		want []string
	}{
		"the newest":  {LetterOptions{Limit: 1}, []string{"d"}},
		"by reason":   {LetterOptions{Reasons: []string{"missing_topic"}}, []string{"a", "c"}},
		"by topic":    {LetterOptions{Topics: []string{"other"}}, []string{"b"}},
		"by table":    {LetterOptions{Tables: []string{"public.outbox", "other.outbox"}}, []string{"a", "b", "c", "d"}},
		"of another":  {LetterOptions{Tables: []string{"other.outbox"}}, nil},
		"by time":     {LetterOptions{Since: after}, []string{"c", "d"}},
		"of no match": {LetterOptions{Topics: []string{"none"}}, nil},
	} {
		if got := ids(b.list(c.opts).Newest); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	var text strings.Builder
	must.OK(t, b.list(LetterOptions{Limit: 1}).WriteText(&text))
	must.Contain(t, text.String(), "4 letters: 2 missing_topic, 1 null_route, 1 record_too_large", "the newest 1:", `d  key "k3"  (no topic)  null_route`, "as the test says", "1 other records are no letters")
}

func TestShowDeadLetter(t *testing.T) {
	b := newBuried(t)
	b.bury(
		letter{"text", orders, "k0", "{\"n\": 1}\n", transform.ReasonMissingTopic, []kgo.RecordHeader{{Key: "note", Value: []byte("\x1b[2J")}, {Key: "cdc-dlq-reason", Value: []byte("mine")}}},
		letter{"bytes", orders, "null", "\xff\x00", transform.ReasonMissingTopic, nil},
		letter{"null", orders, "k1", "null", transform.ReasonMissingTopic, nil},
	)
	show := func(id string) (text, encoded string) {
		t.Helper()
		shown := must.Get(ShowDeadLetter(b.ctx(), b.Config, b.options(LetterOptions{At: b.place(id)})))(t)
		var out strings.Builder
		must.OK(t, shown.WriteText(&out))
		return out.String(), string(must.Get(json.Marshal(shown))(t))
	}
	text, encoded := show("text")
	must.Contain(t, text, "reason    missing_topic", "position  0/10/0", "topic     "+orders, "key       k0", `header    note="\x1b[2J"`,
		"header    cdc-dlq-reason=mine", "value, 9 bytes:\n{\"n\": 1}\n")
	must.Contain(t, encoded, `"value":{"text":"{\"n\": 1}\n"}`, `"key":{"text":"k0"}`)
	text, encoded = show("bytes")
	must.Contain(t, text, "key       null", "in base64:\n/wA=\n")
	must.Contain(t, encoded, `"value":{"base64":"/wA="}`, `"key":null`)
	text, encoded = show("null")
	must.Contain(t, text, "value     null")
	must.Contain(t, encoded, `"value":null`)

	end := *b.place("text")
	end.Offset = 1000
	for _, at := range []LetterPlace{end, {Partition: 7}} {
		_, err := ShowDeadLetter(b.ctx(), b.Config, b.options(LetterOptions{At: &at}))
		wantClass(t, err, failure.Config, b.Errors.DeadLetterTopic)
	}
}

func TestDeadLettersOfATopicThatIsNotThere(t *testing.T) {
	b := newBuried(t)
	b.Errors.DeadLetterTopic = "mistyped"
	_, err := ListDeadLetters(b.ctx(), b.Config, b.options(LetterOptions{}))
	wantClass(t, err, failure.Config, `"mistyped" does not exist`)
}

// redrive publishes or lists the letters chosen.
func (b *buried) redrive(publish bool, opts RedriveOptions) (*Redriven, error) {
	opts.LetterOptions, opts.Publish = b.options(opts.LetterOptions), publish
	return Redrive(b.ctx(), b.Config, opts)
}

// wantRecords asserts the values of a topic's records by key, in order.
func (b *buried) wantRecords(topic, want string, n int) []*kgo.Record {
	b.t.Helper()
	records := b.broker.Consume(b.t, []string{topic}, kafkatest.Count(n))
	byKey := map[string][]string{}
	for _, rec := range records {
		byKey[string(rec.Key)] = append(byKey[string(rec.Key)], string(rec.Value))
	}
	if got := fmt.Sprint(byKey); got != want || len(records) != n {
		b.t.Errorf("%s has %s, want %s", topic, got, want)
	}
	return records
}

// The original records are published in order per key, once.
func TestRedrive(t *testing.T) {
	for _, mode := range []string{sink.DeliveryAtLeastOnce, sink.DeliveryExactlyOnce} {
		t.Run(mode, func(t *testing.T) {
			b := newBuried(t)
			b.Sink.Kafka.Delivery = mode
			var all []letter
			want := map[string][]string{}
			for n := range 12 {
				l := letter{fmt.Sprint("id", n), orders, fmt.Sprint("k", n%3), fmt.Sprint(n), transform.ReasonMissingTopic, []kgo.RecordHeader{{Key: "null", Value: nil}, {Key: "empty", Value: []byte{}}}}
				want[l.key] = append(want[l.key], l.value)
				all = append(all, l)
			}
			b.bury(all...)
			b.bury(letter{"tombstone", orders, "k0", "null", transform.ReasonRejectedByBroker, nil})
			want["k0"] = append(want["k0"], "")

			r := must.Get(b.redrive(false, RedriveOptions{}))(t)
			if r.Letters != 13 || r.ToPublish != 13 || len(r.Listed) != 13 || r.Published != 0 {
				t.Errorf("%+v", r)
			}
			r = must.Get(b.redrive(true, RedriveOptions{LetterOptions: LetterOptions{IDs: []string{"id0"}}}))(t)
			if r.Published != 1 {
				t.Errorf("%+v", r)
			}
			if r = must.Get(b.redrive(true, RedriveOptions{LetterOptions: LetterOptions{At: b.place("id3")}, Rate: 1000}))(t); r.Published != 1 {
				t.Errorf("%+v", r)
			}
			r = must.Get(b.redrive(true, RedriveOptions{}))(t)
			if r.Before != 2 || r.Published != 11 {
				t.Errorf("%+v", r)
			}
			r = must.Get(b.redrive(true, RedriveOptions{}))(t)
			if r.Before != 13 || r.Published != 0 || r.ToPublish != 0 {
				t.Errorf("%+v", r)
			}
			for _, rec := range b.wantRecords(orders, fmt.Sprint(want), 13) {
				var names []string
				for _, h := range rec.Headers {
					names = append(names, h.Key)
				}
				if string(rec.Value) == "" {
					if rec.Value != nil {
						t.Error("the tombstone has become an empty value")
					}
					continue
				}
				if got := strings.Join(names, " "); got != "id null empty cdc-redrive" {
					t.Errorf("headers %s", got)
				}
				if rec.Headers[1].Value != nil || rec.Headers[2].Value == nil {
					t.Errorf("%+v", rec.Headers)
				}
				if at := b.place(string(rec.Headers[0].Value)); string(rec.Headers[3].Value) != at.String() {
					t.Errorf("the record of letter %s names %s", at, rec.Headers[3].Value)
				}
			}
		})
	}
}

// Letters without the whole record are named, with a remedy, and the rest of their key
// waits.
func TestRedriveRefusesLettersWithoutTheRecord(t *testing.T) {
	b := newBuried(t)
	dead := "small"
	b.broker.CreateTopic(t, dead, 1, map[string]string{"max.message.bytes": "20000"})
	b.Errors.DeadLetterTopic = dead
	b.bury(
		letter{"cut", orders, "k0", strings.Repeat("x", 100_000), transform.ReasonRecordTooLarge, nil},
		letter{"behind", orders, "k0", "2", transform.ReasonMissingTopic, nil},
		letter{"other key", orders, "k1", "3", transform.ReasonMissingTopic, nil},
		letter{"no topic", "", "k1", "4", transform.ReasonNullRoute, nil},
		letter{"row", orders, "k2", `{"id": "row"}`, transform.ReasonMissingColumn, nil},
		letter{"forged", "__consumer_offsets", "k2", "5", transform.ReasonMissingTopic, nil},
		letter{"self", dead, "k2", "6", transform.ReasonMissingTopic, nil},
	)
	r, err := b.redrive(true, RedriveOptions{})
	wantClass(t, err, failure.Config, "6 of 7 letters were not published")
	if r.Refused != 5 || r.Waiting != 1 || r.Published != 1 {
		t.Errorf("%+v", r)
	}
	why := map[string]string{}
	for _, refusal := range r.Refusals {
		why[refusal.ID] = refusal.Why
		must.Contain(t, refusal.Remedy, "cdc-outbox replay --name redrive --id '"+refusal.ID+"' --publish")
	}
	for id, words := range map[string]string{"cut": "value=100000", "no topic": "no topic", "row": "missing_column", "forged": "reserved", "self": "that of the dead letters"} {
		must.Contain(t, why[id], words)
	}
	b.wantRecords(orders, "map[k1:[3]]", 1)
	if r = must.Get(b.redrive(true, RedriveOptions{LetterOptions: LetterOptions{IDs: []string{"behind"}}}))(t); r.Published != 1 {
		t.Errorf("%+v: a waiting letter asked for by itself", r)
	}
}

// A letter that brokers refuse again is named, the rest of its key waits, and others
// are published.
func TestRedriveOfALetterRefusedAgain(t *testing.T) {
	for _, mode := range []string{sink.DeliveryAtLeastOnce, sink.DeliveryExactlyOnce} {
		t.Run(mode, func(t *testing.T) {
			b := newBuried(t)
			b.Sink.Kafka.Delivery = mode
			b.broker.CreateTopic(t, orders, 1, map[string]string{"max.message.bytes": "20000"})
			large := strings.Repeat("x", 100_000)
			b.bury(
				letter{"1", orders, "k0", "first", transform.ReasonRejectedByBroker, nil},
				letter{"2", orders, "k0", large, transform.ReasonRecordTooLarge, nil},
				letter{"3", orders, "k0", "third", transform.ReasonRejectedByBroker, nil},
				letter{"4", orders, "k1", "other", transform.ReasonRejectedByBroker, nil},
			)
			r, err := b.redrive(true, RedriveOptions{})
			wantClass(t, err, failure.Config, "2 of 4 letters")
			if r.Published != 2 || r.Refused != 1 || r.Waiting != 1 || r.ToPublish != 2 || r.Refusals[0].ID != "2" || !strings.Contains(r.Refusals[0].Remedy, "max.message.bytes") {
				t.Errorf("%+v", r)
			}
			b.wantRecords(orders, "map[k0:[first] k1:[other]]", 2)
			b.allow(orders, "1000000")
			if r = must.Get(b.redrive(true, RedriveOptions{}))(t); r.Before != 2 || r.Published != 2 {
				t.Errorf("%+v", r)
			}
			b.wantRecords(orders, "map[k0:[first "+large+" third] k1:[other]]", 4)
		})
	}
}

// allow raises the topic's limit for records.
func (b *buried) allow(topic, bytes string) {
	b.t.Helper()
	client := b.broker.Client(b.t)
	defer client.Close()
	set := kadm.AlterConfig{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &bytes}
	for _, r := range must.Get(kadm.NewClient(client).AlterTopicConfigs(b.ctx(), []kadm.AlterConfig{set}, topic))(b.t) {
		must.OK(b.t, r.Err)
	}
}

// Where a redriven record may be gone, nothing is published twice unasked.
func TestRedriveInDoubt(t *testing.T) {
	for name, c := range map[string]struct {
		settings map[string]string
		trim     int64
		words    string
	}{
		"compacted":                {map[string]string{"cleanup.policy": "compact"}, 0, "is compacted"},
		"records deleted":          {nil, 1, "are deleted"},
		"up to an old foreign one": {nil, 2, "are deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBuried(t)
			b.broker.CreateTopic(t, orders, 1, c.settings)
			b.bury(letter{"a", orders, "k0", "1", transform.ReasonMissingTopic, nil}, letter{"b", "fresh", "k0", "2", transform.ReasonMissingTopic, nil})
			b.send(orders, 3, 6)
			b.foreign(orders, 48*time.Hour)
			if c.trim > 0 {
				b.trim(orders, c.trim)
			}
			r, err := b.redrive(true, RedriveOptions{})
			wantClass(t, err, failure.Config, "1 of 2 letters")
			if r.Uncertain != 1 || r.Published != 1 || !strings.Contains(fmt.Sprint(r.Limits), c.words) {
				t.Errorf("%+v", r)
			}
			if r = must.Get(b.redrive(true, RedriveOptions{Uncertain: true}))(t); r.Published != 1 || r.Before != 1 {
				t.Errorf("%+v", r)
			}
			if r = must.Get(b.redrive(true, RedriveOptions{Uncertain: true}))(t); r.Published != 0 || r.Before != 2 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A record names a letter of a topic that was made again: the letter at its place is
// another.
func TestRedriveTellsLettersApart(t *testing.T) {
	b := newBuried(t)
	b.bury(letter{"a", orders, "k0", "1", transform.ReasonMissingTopic, nil})
	at := b.place("a")
	b.broker.CreateTopic(t, orders, 1, nil)
	client := b.broker.Client(t)
	defer client.Close()
	produce := func(id string) {
		must.OK(t, client.ProduceSync(b.ctx(), &kgo.Record{Topic: orders, Key: []byte("k0"), Headers: []kgo.RecordHeader{
			{Key: "id", Value: []byte(id)}, {Key: transform.HeaderRedrive, Value: []byte(at.String())},
		}}).FirstErr())
	}
	produce("former")
	if r := must.Get(b.redrive(false, RedriveOptions{}))(t); r.Before != 0 || r.ToPublish != 1 {
		t.Errorf("%+v", r)
	}
	produce("a")
	if r := must.Get(b.redrive(false, RedriveOptions{}))(t); r.Before != 1 || r.ToPublish != 0 {
		t.Errorf("%+v", r)
	}
}

// With times of their own, redriven records are found all the same: the time asked
// for is a header.
func TestRedriveWithTheTimeOfTheCommit(t *testing.T) {
	b := newBuried(t)
	b.Event.RecordTime = transform.RecordTimeCommit
	b.bury(letter{"a", orders, "k0", "1", transform.ReasonMissingTopic, nil})
	must.Get(b.redrive(true, RedriveOptions{}))(t)
	rec := b.wantRecords(orders, "map[k0:[1]]", 1)[0]
	if h := rec.Headers[1]; h.Key != transform.HeaderAsked || string(h.Value) != "2023-11-14T22:13:20.000000Z" || time.Since(rec.Timestamp) > time.Hour {
		t.Errorf("%+v at %s", rec.Headers, rec.Timestamp)
	}
	if r := must.Get(b.redrive(true, RedriveOptions{}))(t); r.Before != 1 {
		t.Errorf("%+v", r)
	}
}

func TestRedriveOfUnknownLetters(t *testing.T) {
	b := newBuried(t)
	b.bury(letter{"a", orders, "k0", "1", transform.ReasonMissingTopic, nil})
	_, err := b.redrive(false, RedriveOptions{LetterOptions: LetterOptions{IDs: []string{"a", "b"}}})
	wantClass(t, err, failure.Config, `the id "b"`)
	_, err = b.redrive(false, RedriveOptions{LetterOptions: LetterOptions{At: b.place("a"), Topics: []string{"other"}}})
	wantClass(t, err, failure.Config, "no letter")
}

// A second one that publishes at the same time would publish the same.
func TestRedriveIsAlone(t *testing.T) {
	b := newBuried(t)
	b.exec(`SELECT pg_advisory_lock(hashtext('cdc-outbox dead-letters redrive'), hashtext('` + b.Source.Slot + `'))`)
	_, err := b.redrive(true, RedriveOptions{})
	wantClass(t, err, failure.Config, "another dead-letters redrive")
	must.Get(b.redrive(false, RedriveOptions{}))(t)
}

// Brokers that are gone end it with an error; a repetition finds what was published.
func TestRedriveWithoutBrokersInTheMiddle(t *testing.T) {
	b := newBuried(t)
	b.bury(letter{"a", orders, "k0", "1", transform.ReasonMissingTopic, nil}, letter{"b", "absent", "k0", "2", transform.ReasonMissingTopic, nil})
	b.Sink.Kafka.CreateTopics = false
	b.broker.CreateTopic(t, orders, 1, nil)
	var notes bytes.Buffer
	stop := writerFunc(func(line []byte) (int, error) {
		if strings.Contains(string(line), "waiting for topic") {
			b.broker.Stop(t)
		}
		return notes.Write(line)
	})
	opts := RedriveOptions{LetterOptions: b.options(LetterOptions{Notes: stop}), Publish: true}
	opts.Timeout = time.Second
	_, err := Redrive(b.ctx(), b.Config, opts)
	wantClass(t, err, failure.Transient, "within 1s")
	must.Contain(t, notes.String(), `waiting for topic "absent"`, "kafka-topics.sh")
	_, err = ListDeadLetters(b.ctx(), b.Config, opts.LetterOptions)
	if err == nil || failure.RemedyOf(err) == "" {
		t.Errorf("without a broker: %v", err)
	}
	b.broker.Resume(t)
	b.broker.CreateTopic(t, "absent", 1, nil)
	if r := must.Get(b.redrive(true, RedriveOptions{}))(t); r.Before+r.Published != 2 {
		t.Errorf("%+v", r)
	}
	b.wantRecords(orders, "map[k0:[1]]", 1)
	b.wantRecords("absent", "map[k0:[2]]", 1)
}

// The letters of events that brokers refused have all of their records.
func TestRedriveOfEventsThatBrokersRefused(t *testing.T) {
	b := newBuried(t)
	b.broker.CreateTopic(t, orders, 2, map[string]string{"max.message.bytes": "20000"})
	var events []*transform.Event
	for n := range 10 {
		value := strings.Repeat("x", n)
		if n%3 == 1 {
			value = strings.Repeat("x", 30_000+n)
		}
		events = append(events, &transform.Event{Table: "public.outbox", ID: []byte(eventID(n)), CommitTime: time.Now(), Record: kgo.Record{
			Topic: orders, Partition: transform.PartitionByKey, Key: fmt.Appendf(nil, "k%d", n%2), Value: []byte(value),
			Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(eventID(n))}, {Key: "eventType", Value: []byte("Placed")}},
		}})
	}
	out := must.Get(sink.NewKafka(*b.Sink.Kafka, sink.WithDeadLetterTopic(b.Errors.DeadLetterTopic)))(t)
	defer out.Close()
	must.OK(t, out.Deliver(b.ctx(), events, out.DeadLetter))
	if list := b.list(LetterOptions{}); list.Letters != 3 || list.Reasons["record_too_large"] != 3 {
		t.Fatalf("%+v", list)
	}
	b.allow(orders, "1000000")
	must.Get(b.redrive(true, RedriveOptions{}))(t)
	var got []string
	partitions := map[string]int32{}
	for _, rec := range b.broker.Consume(t, []string{orders}, kafkatest.Count(10)) {
		if p, known := partitions[string(rec.Key)]; known && p != rec.Partition {
			t.Errorf("key %s is in partitions %d and %d", rec.Key, p, rec.Partition)
		}
		partitions[string(rec.Key)] = rec.Partition
		if rec.Headers[len(rec.Headers)-1].Key == transform.HeaderRedrive {
			got = append(got, fmt.Sprintf("%s %s %s %d", rec.Headers[0].Value, rec.Headers[1].Value, rec.Key, len(rec.Value)))
		}
	}
	slices.Sort(got)
	want := []string{eventID(1) + " Placed k1 30001", eventID(4) + " Placed k0 30004", eventID(7) + " Placed k1 30007"}
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("redriven %q, want %q", got, want)
	}
}

// Without a right the remedy is the command that gives it.
func TestDeadLettersWithoutRights(t *testing.T) {
	broker := kafkatest.Start(t, kafkatest.Logins("cdc"))
	cfg := config.Default()
	cfg.Source.URL = "postgres://cdc@localhost/app"
	cfg.Sink.Kafka.Brokers = broker.Brokers
	cfg.Sink.Kafka.SASL = sink.SASL{Mechanism: "PLAIN", Username: "cdc", Password: kafkatest.Password}
	dead := cfg.Errors.DeadLetterTopic
	broker.CreateTopic(t, dead, 1, nil)
	client := broker.Client(t)
	defer client.Close()
	must.OK(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: dead}).FirstErr())
	for _, op := range []kadm.ACLOperation{0, kadm.OpDescribe} {
		if op != 0 {
			broker.Allow(t, "cdc", kadm.NewACLs().Topics(dead), op)
		}
		_, err := ListDeadLetters(t.Context(), &cfg, LetterOptions{Timeout: patience, Notes: io.Discard, Limit: 1})
		wantClass(t, err, failure.Config, "does not allow to read topic", dead)
		if !strings.Contains(failure.RemedyOf(err), "--operation Read --topic '"+dead+"'") {
			t.Errorf("remedy %s", failure.RemedyOf(err))
		}
	}
	broker.Allow(t, "cdc", kadm.NewACLs().Topics(dead), kadm.OpRead)
	must.Get(ListDeadLetters(t.Context(), &cfg, LetterOptions{Timeout: patience, Notes: io.Discard, Limit: 1}))(t)
}

// Partitions are merged by time, letters of a partition keep their order, and a key
// waits behind its first letter that is left out.
func TestOrderOfLetters(t *testing.T) {
	order := inOrder(map[int32][]chosen{
		0: {{at: 5, offset: 1, key: 1}, {at: 3, offset: 2, key: 2, fate: fateRefused}, {at: 9, offset: 3, key: 1}},
		1: {{at: 4, offset: 1, partition: 1, key: 2, fate: fateDone}, {at: 6, offset: 2, partition: 1, key: 2}, {at: 7, offset: 4, partition: 1}},
	})
	leaveOut(order)
	var got []string
	for _, c := range order {
		got = append(got, fmt.Sprintf("%s:%d", c.place(), c.fate))
	}
	if want := "1/1:1 0/1:0 0/2:2 1/2:4 1/4:0 0/3:0"; strings.Join(got, " ") != want {
		t.Errorf("%s, want %s", strings.Join(got, " "), want)
	}
}

// Letters that do not fit into memory together are fetched part by part.
func TestRedriveOfLargeLetters(t *testing.T) {
	b := newBuried(t)
	var all []letter
	want := map[string][]string{}
	for n := range 30 {
		l := letter{fmt.Sprint("id", n), orders, fmt.Sprint("k", n%7), fmt.Sprint(n) + strings.Repeat("x", 900_000), transform.ReasonMissingTopic, nil}
		want[l.key] = append(want[l.key], fmt.Sprint(n))
		all = append(all, l)
	}
	b.bury(all...)
	if r := must.Get(b.redrive(true, RedriveOptions{}))(t); r.Published != 30 {
		t.Errorf("%+v", r)
	}
	got := map[string][]string{}
	for _, rec := range b.broker.Consume(t, []string{orders}, kafkatest.Count(30)) {
		got[string(rec.Key)] = append(got[string(rec.Key)], strings.TrimRight(string(rec.Value), "x"))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}
