package admin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// past is a record that a connector has written. Its LSN is 0/n00; none for -1.
type past struct {
	id, key, value string
	lsn            int
}

// pastTime is that of the first.
var pastTime = time.Now().Add(-2 * time.Hour).Truncate(time.Second)

// record is the record, n seconds after the first.
func (e past) record(topic string, n int) *kgo.Record {
	rec := &kgo.Record{Topic: topic, Key: []byte(e.key), Value: bytesOf(e.value), Timestamp: pastTime.Add(time.Duration(n) * time.Second)}
	if e.id != "" {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: "id", Value: []byte(e.id)}, kgo.RecordHeader{Key: "note", Value: nil}, kgo.RecordHeader{Key: "empty", Value: []byte{}})
	}
	if e.lsn >= 0 {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: transform.HeaderLSN, Value: fmt.Appendf(nil, "0/%X00", e.lsn)})
	}
	return rec
}

// wrote writes records, in order, to partitions by their keys.
func (p *published) wrote(topic string, events ...past) {
	p.t.Helper()
	client := p.broker.Client(p.t)
	defer client.Close()
	for n, e := range events {
		must.OK(p.t, client.ProduceSync(p.ctx(), e.record(topic, n)).FirstErr())
	}
}

// again replays records of a topic.
func (p *published) again(publish bool, opts TopicReplayOptions) (*TopicReplay, error) {
	opts.Dir, opts.Timeout, opts.Publish = p.t.TempDir(), patience, publish
	opts.List, opts.Name = 100, "again"
	if opts.Notes == nil {
		opts.Notes = &strings.Builder{}
	}
	return ReplayTopic(p.ctx(), p.Config, opts)
}

var pastEvents = []past{
	{"a", "k0", "1", 1}, {"b", "k1", "2", 1}, {"c", "k0", "3", 2}, {"a", "k0", "1", 1}, {"", "k0", "foreign", -1},
	{"d", "k2", "null", 3}, {"e", "k0", "5", 4}, {"f", "k1", "6", -1},
}

// Each event of the range is published once more, byte for byte, in order per key, and
// a repetition under the name goes on, also in the topic itself.
func TestReplayOfATopic(t *testing.T) {
	for _, mode := range []string{sink.DeliveryAtLeastOnce, sink.DeliveryExactlyOnce} {
		for _, to := range []string{"", "elsewhere"} {
			t.Run(mode+" "+to, func(t *testing.T) {
				p := newPublished(t)
				p.exec(`DROP TABLE outbox CASCADE`) // the rows are gone
				p.Sink.Kafka.Delivery = mode
				p.broker.CreateTopic(t, "source", 3, nil)
				p.wrote("source", pastEvents...)
				originals := p.broker.Consume(t, []string{"source"}, kafkatest.Count(len(pastEvents)))

				all := TopicReplayOptions{From: "source", To: to, Until: time.Now()}
				r := must.Get(p.again(false, all))(t)
				var listed []string
				for _, rec := range r.Listed {
					listed = append(listed, rec.ID)
				}
				if r.Records != 7 || r.Repeated != 1 || r.Others != 1 || r.ToPublish != 6 || r.Published != 0 || len(r.Limits) != 0 || !slices.Equal(listed, []string{"a", "b", "c", "d", "e", "f"}) {
					t.Errorf("%+v", r)
				}
				if r = must.Get(p.again(true, TopicReplayOptions{From: "source", To: to, IDs: []string{"c"}}))(t); r.Published != 1 {
					t.Errorf("%+v", r)
				}
				if r = must.Get(p.again(true, all))(t); r.Before != 1 || r.Published != 5 {
					t.Errorf("%+v", r)
				}
				all.Until = time.Now() // with the replay's own records
				if r = must.Get(p.again(true, all))(t); r.Before != 7 || r.Published != 0 || r.ToPublish != 0 {
					t.Errorf("%+v", r)
				}

				topic, n := "source", len(pastEvents)+6
				if to != "" {
					topic, n = to, 6
				}
				var got []string
				for _, rec := range p.broker.Consume(t, []string{topic}, kafkatest.Count(n)) {
					last := len(rec.Headers) - 1
					if last < 0 || rec.Headers[last].Key != transform.HeaderReplay {
						continue
					}
					if string(rec.Key) == "k0" {
						got = append(got, string(rec.Value))
					}
					i := slices.IndexFunc(originals, func(o *kgo.Record) bool {
						return len(o.Headers) > 0 && string(o.Headers[0].Value) == string(rec.Headers[0].Value)
					})
					if o := originals[i]; string(o.Value) != string(rec.Value) || (o.Value == nil) != (rec.Value == nil) || fmt.Sprintf("%#v", o.Headers) != fmt.Sprintf("%#v", rec.Headers[:last]) ||
						string(rec.Headers[last].Value) != "again" {
						t.Errorf("%+v, of %+v", rec, o)
					}
				}
				if want := []string{"3", "1", "5"}; !slices.Equal(got, want) {
					t.Errorf("k0 has %q, want %q", got, want)
				}
			})
		}
	}
}

func TestRangesOfATopic(t *testing.T) {
	p := newPublished(t)
	p.broker.CreateTopic(t, "source", 1, nil)
	p.wrote("source", pastEvents...)
	for name, c := range map[string]struct {
		opts  TopicReplayOptions
		want  string
		limit string
	}{
		"positions":     {TopicReplayOptions{LSNs: LSNs{From: 0x200, To: 0x300}}, "cd", "1 records have no cdc-lsn"},
		"from one on":   {TopicReplayOptions{LSNs: LSNs{From: 0x400}}, "e", "1 records have no cdc-lsn"},
		"offsets":       {TopicReplayOptions{Offsets: []OffsetRange{{0, 1, 3}, {0, 7, lastOffset}}}, "bcaf", ""},
		"keys":          {TopicReplayOptions{Keys: []string{"k2", "k1"}}, "bdf", ""},
		"times":         {TopicReplayOptions{Since: pastTime.Add(4 * time.Second)}, "def", ""},
		"a key in part": {TopicReplayOptions{Keys: []string{"k0"}, Offsets: []OffsetRange{{0, 2, 5}}}, "ca", ""},
	} {
		c.opts.From, c.opts.To = "source", "elsewhere"
		r := must.Get(p.again(false, c.opts))(t)
		got := ""
		for _, rec := range r.Listed {
			got += rec.ID
		}
		if limits := strings.Join(r.Limits, "\n"); got != c.want || !strings.Contains(limits, c.limit) || c.limit == "" && limits != "" {
			t.Errorf("%s: %q, %+v", name, got, r)
		}
	}
	for words, opts := range map[string]TopicReplayOptions{
		`with the id "y", "z"`:             {IDs: []string{"a", "z", "y"}},
		`with the key "K0"`:                {Keys: []string{"K0", "k1"}},
		"in the range: they have 0/100 to": {LSNs: LSNs{From: 0x900}},
		"none has a position":              {LSNs: LSNs{From: 0x100}, Offsets: []OffsetRange{{0, 7, lastOffset}}},
		"none with the number 7":           {Offsets: []OffsetRange{{7, 0, 1}}},
		"ends before offset 8":             {Offsets: []OffsetRange{{0, 0, 8}}},
		`topic "mistyped" does not exist`:  {From: "mistyped"},
		"which are no records of events":   {From: p.Errors.DeadLetterTopic},
		`--to "in valid"`:                  {To: "in valid"},
	} {
		if opts.From == "" {
			opts.From = "source"
		}
		_, err := p.again(true, opts)
		wantClass(t, err, failure.Config, words)
	}
}

// A range that the topic may have had more of is no success: the exit code says so
// after what there is was published.
func TestReplayOfATopicWithLess(t *testing.T) {
	p := newPublished(t)
	p.broker.CreateTopic(t, "compacted", 1, map[string]string{"cleanup.policy": "compact"})
	p.wrote("compacted", pastEvents...)
	r, err := p.again(true, TopicReplayOptions{From: "compacted", To: "elsewhere", Until: time.Now()})
	wantClass(t, err, failure.Config, "may have had more records than the 7 chosen")
	if r.Published != 6 || !strings.Contains(fmt.Sprint(r.Limits), "is compacted") {
		t.Errorf("%+v", r)
	}

	p.broker.CreateTopic(t, "trimmed", 1, nil)
	p.wrote("trimmed", pastEvents...)
	p.trim("trimmed", 2)
	lost := func(opts TopicReplayOptions) bool {
		t.Helper()
		opts.From, opts.To = "trimmed", "elsewhere"
		return strings.Contains(fmt.Sprint(must.Get(p.again(false, opts))(t).Limits), "has lost records to retention, of the range perhaps: it has those of partition 0 (from offset 2,")
	}
	for name, c := range map[string]struct {
		opts TopicReplayOptions
		lost bool
	}{
		"all":                      {TopicReplayOptions{Until: time.Now()}, true},
		"offsets that are gone":    {TopicReplayOptions{Offsets: []OffsetRange{{0, 1, 4}}}, true},
		"offsets that are left":    {TopicReplayOptions{Offsets: []OffsetRange{{0, 2, 4}}}, false},
		"times before":             {TopicReplayOptions{Since: pastTime.Add(-time.Hour)}, true},
		"times since":              {TopicReplayOptions{Since: pastTime.Add(time.Hour)}, false},
		"positions that are gone":  {TopicReplayOptions{LSNs: LSNs{From: 0x100}}, true},
		"positions that are left":  {TopicReplayOptions{LSNs: LSNs{From: 0x300}}, false},
		"an id, which is there":    {TopicReplayOptions{IDs: []string{"d"}}, false},
		"a key, perhaps with more": {TopicReplayOptions{Keys: []string{"k0"}}, true},
	} {
		if got := lost(c.opts); got != c.lost {
			t.Errorf("%s: records are lost: %v", name, got)
		}
	}
}

// Records of an aborted transaction are no events, and those of a replay are not
// replayed.
func TestReplayOfATopicReadsCommittedRecords(t *testing.T) {
	p := newPublished(t)
	p.broker.CreateTopic(t, "source", 1, nil)
	for n, how := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		client := p.broker.Client(t, kgo.TransactionalID("writer"))
		must.OK(t, client.BeginTransaction())
		must.OK(t, client.ProduceSync(p.ctx(), past{fmt.Sprint("e", n), "k", fmt.Sprint(n), 1}.record("source", n)).FirstErr())
		must.OK(t, client.EndTransaction(p.ctx(), how))
		client.Close()
	}
	r := must.Get(p.again(true, TopicReplayOptions{From: "source", To: "first", Until: time.Now()}))(t)
	if r.Records != 1 || r.Published != 1 {
		t.Errorf("%+v", r)
	}
	if r = must.Get(p.again(true, TopicReplayOptions{From: "first", To: "second", Until: time.Now()}))(t); r.Replays != 1 || r.Published != 0 {
		t.Errorf("%+v", r)
	}
	if records := p.broker.Consume(t, []string{"first"}, kafkatest.Count(1)); string(records[0].Value) != "1" {
		t.Errorf("%+v", records[0])
	}
}

// Two replays that publish at the same time would publish the same.
func TestReplayOfATopicIsAlone(t *testing.T) {
	p := newPublished(t)
	p.broker.CreateTopic(t, "source", 1, nil)
	p.wrote("source", pastEvents...)
	p.exec(`SELECT pg_advisory_lock(hashtext('cdc-outbox replay'), hashtext('` + p.Source.Slot + `'))`)
	_, err := p.again(true, TopicReplayOptions{From: "source", Until: time.Now()})
	wantClass(t, err, failure.Config, "another replay")
	must.Get(p.again(false, TopicReplayOptions{From: "source", Until: time.Now()}))(t)
}

func TestParseOffsets(t *testing.T) {
	for text, want := range map[string]OffsetRange{"0:5-9": {0, 5, 9}, "12:0-0": {12, 0, 0}, "1:7-": {1, 7, lastOffset}} {
		if got := must.Get(ParseOffsets(text))(t); got != want || got.String() != text {
			t.Errorf("%q: %+v", text, got)
		}
	}
	for _, text := range []string{"", "0", "0:5", "0:5-4", "-1:5-6", "0:-5-6", "x:1-2", "0:a-2", "0:1-b", "5-6"} {
		if got, err := ParseOffsets(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
