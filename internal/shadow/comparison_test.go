package shadow

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

const (
	topic      = "orders"
	partitions = 3
)

func header(name, value string) kgo.RecordHeader {
	return kgo.RecordHeader{Key: name, Value: []byte(value)}
}

// ours is an event of ours: the commit is that of the id.
func ours(id int, change ...func(*kgo.Record)) Event {
	r := &kgo.Record{Topic: topic, Partition: transform.PartitionByKey, Key: []byte("k"), Value: []byte(fmt.Sprint(id)),
		Headers: []kgo.RecordHeader{header("id", fmt.Sprint(id)), header("type", "Placed")}}
	for _, c := range change {
		c(r)
	}
	return Event{Record: r, At: pg.Position{CommitLSN: pg.LSN(id)}}
}

// theirs is Debezium's record of the same event, at the offset.
func theirs(id int, offset int64, change ...func(*kgo.Record)) *kgo.Record {
	r := ours(id).Record
	r.Partition, r.Offset, r.Timestamp = sink.PartitionOf(r.Key, partitions), offset, time.UnixMilli(1)
	for _, c := range change {
		c(r)
	}
	return r
}

// end is a round's ends behind so many records.
func end(offset int64) map[Place]int64 {
	return map[Place]int64{{topic, sink.PartitionOf([]byte("k"), partitions)}: offset}
}

// begun is a comparison from the position on, whose fence is offset 0.
func begun(opts Options, from pg.LSN) *Comparison {
	if opts.Limit == 0 {
		opts.Limit = 1 << 20
	}
	opts.Examples = 10
	c := New(opts)
	c.Partitions(topic, partitions)
	c.Begin(from)
	c.Settle(Round{Confirmed: from, Ends: end(0), Whole: true, Flushed: from})
	return c
}

// counts are the numbers of a report other than zero.
func counts(r Report) string {
	var out []string
	v := reflect.ValueOf(r)
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Type.Kind() == reflect.Int64 && v.Field(i).Int() != 0 {
			out = append(out, fmt.Sprintf("%s %d", strings.ToLower(f.Name), v.Field(i).Int()))
		}
	}
	return strings.Join(out, ", ")
}

func TestWhatCounts(t *testing.T) {
	for name, tt := range map[string]struct {
		do    func(*Comparison)
		want  string
		parts string
	}{
		"equal, ours first":    {func(c *Comparison) { c.Ours(ours(1)); c.Theirs(theirs(1, 0)) }, "ours 1, theirs 1, equal 1", ""},
		"equal, theirs first":  {func(c *Comparison) { c.Theirs(theirs(1, 0)); c.Ours(ours(1)) }, "ours 1, theirs 1, equal 1", ""},
		"repeated":             {func(c *Comparison) { c.Ours(ours(1)); c.Theirs(theirs(1, 0)); c.Theirs(theirs(1, 1)) }, "ours 1, theirs 2, equal 1, repeated 1", ""},
		"repeated before ours": {func(c *Comparison) { c.Theirs(theirs(1, 0)); c.Theirs(theirs(1, 1)); c.Ours(ours(1)) }, "ours 1, theirs 2, equal 1, repeated 1", ""},
		"repeated with another run's id": {func(c *Comparison) {
			run := func(n string) func(*kgo.Record) {
				return func(r *kgo.Record) { r.Headers = append(r.Headers, header(runID, n)) }
			}
			c.Ours(ours(1))
			c.Theirs(theirs(1, 0, run("a")))
			c.Theirs(theirs(1, 1, run("b")))
		}, "ours 1, theirs 2, equal 1, repeated 1", ""},
		"repeated with another value": {func(c *Comparison) {
			c.Ours(ours(1))
			c.Theirs(theirs(1, 0))
			c.Theirs(theirs(1, 1, func(r *kgo.Record) { r.Value = []byte("else") }))
		}, "ours 1, theirs 2, equal 1, different 1", "repetition"},
		"the value, the key, and so the partition": {func(c *Comparison) {
			c.Ours(ours(1))
			c.Theirs(theirs(1, 0, func(r *kgo.Record) { r.Value, r.Key, r.Partition = nil, []byte("x"), 9 }))
		}, "ours 1, theirs 1, different 1", "key partition value"},
		"headers": {func(c *Comparison) {
			c.Ours(ours(1))
			c.Theirs(theirs(1, 0, func(r *kgo.Record) { r.Headers = append(r.Headers[:1], header("more", "x")) }))
		}, "ours 1, theirs 1, different 1", "header more, header type"},
		"order of headers": {func(c *Comparison) {
			c.Ours(ours(1))
			c.Theirs(theirs(1, 0, func(r *kgo.Record) { r.Headers[0], r.Headers[1] = r.Headers[1], r.Headers[0] }))
		}, "ours 1, theirs 1, different 1", "order of headers"},
		"the time, where the row names one": {func(c *Comparison) {
			c.Ours(ours(1, func(r *kgo.Record) { r.Timestamp = time.UnixMilli(2) }))
			c.Theirs(theirs(1, 0))
		}, "ours 1, theirs 1, different 1", "time"},
		"the topic": {func(c *Comparison) {
			c.Ours(ours(1))
			c.Theirs(theirs(1, 0, func(r *kgo.Record) { r.Topic = "other" }))
		}, "ours 1, theirs 1, different 1", "topic"},
		"the partition": {func(c *Comparison) {
			c.Ours(ours(1))
			c.Theirs(theirs(1, 0, func(r *kgo.Record) { r.Partition = (r.Partition + 1) % partitions }))
		}, "ours 1, theirs 1, different 1", "partition"},
		"the partition named by the row": {func(c *Comparison) {
			c.Ours(ours(1, func(r *kgo.Record) { r.Partition = 0 }))
			c.Theirs(theirs(1, 0, func(r *kgo.Record) { r.Partition = 1 }))
		}, "ours 1, theirs 1, different 1", "partition"},
		"no key: any partition": {func(c *Comparison) {
			c.Ours(ours(1, func(r *kgo.Record) { r.Key = nil }))
			c.Theirs(theirs(1, 0, func(r *kgo.Record) { r.Key, r.Partition = nil, 2 }))
		}, "ours 1, theirs 1, equal 1", ""},
		"the partition while their number grows": {func(c *Comparison) {
			c.Partitions(topic, partitions+4)
			c.Ours(ours(1))
			c.Theirs(theirs(1, 0, func(r *kgo.Record) { r.Partition = sink.PartitionOf(r.Key, partitions+4) }))
		}, "ours 1, theirs 1, equal 1", ""},
		"out of order": {func(c *Comparison) {
			c.Ours(ours(1))
			c.Ours(ours(2))
			c.Theirs(theirs(2, 0))
			c.Theirs(theirs(1, 1))
		}, "ours 2, theirs 2, equal 1, different 1", "order in the key"},
		"out of order, theirs first": {func(c *Comparison) {
			c.Theirs(theirs(2, 0))
			c.Theirs(theirs(1, 1))
			c.Ours(ours(1))
			c.Ours(ours(2))
		}, "ours 2, theirs 2, equal 1, different 1", "order in the key"},
		"order of other keys": {func(c *Comparison) {
			other := func(r *kgo.Record) { r.Key = []byte("a") }
			c.Ours(ours(1, other))
			c.Ours(ours(2))
			c.Theirs(theirs(2, 0))
			c.Theirs(theirs(1, 1, other, func(r *kgo.Record) { r.Partition = sink.PartitionOf(r.Key, partitions) }))
		}, "ours 2, theirs 2, equal 2", ""},
		"not confirmed yet": {func(c *Comparison) {
			c.Ours(ours(5))
			c.Settle(Round{Confirmed: 5, Ends: end(0), Whole: true, Flushed: 9})
		}, "ours 1, pending 1", ""},
		"confirmed, the topics not read": {func(c *Comparison) {
			c.Ours(ours(5))
			c.Settle(Round{Confirmed: 6, Ends: end(9), Flushed: 9})
		}, "ours 1, pending 1", ""},
		"missing": {func(c *Comparison) {
			c.Ours(ours(5))
			c.Settle(Round{Confirmed: 6, Ends: end(0), Whole: true, Flushed: 9})
		}, "ours 1, missing 1", ""},
		"perhaps deleted before it was read": {func(c *Comparison) {
			c.Ours(ours(5))
			c.Lost(topic, 9)
			c.Settle(Round{Confirmed: 6, Ends: end(0), Whole: true, Flushed: 9})
		}, "ours 1, unjudged 1", ""},
		"perhaps deleted, and confirmed later; the next is missing": {func(c *Comparison) {
			c.Ours(ours(5))
			c.Ours(ours(6))
			c.Lost(topic, 6)
			c.Settle(Round{Confirmed: 5, Ends: end(0), Whole: true, Flushed: 6})
			c.Settle(Round{Confirmed: 7, Ends: end(0), Whole: true, Flushed: 9})
		}, "ours 2, missing 1, unjudged 1", ""},
		"the topic is made again: offsets begin anew": {func(c *Comparison) {
			c.Ours(ours(1))
			c.Ours(ours(2))
			c.Theirs(theirs(1, 10))
			c.Lost(topic, 2)
			c.Theirs(theirs(2, 0))
		}, "ours 2, theirs 2, equal 2", ""},
		"additional in a topic made again": {func(c *Comparison) {
			c.Settle(Round{Confirmed: 6, Ends: end(10), Whole: true, Flushed: 9})
			c.Lost(topic, 9)
			c.Passed(9)
			c.Settle(Round{Confirmed: 6, Ends: end(0), Whole: true, Flushed: 9})
			c.Theirs(theirs(10, 0))
			c.Passed(11)
			c.Settle(Round{Confirmed: 6, Ends: end(1), Whole: true, Flushed: 11})
		}, "theirs 1, additional 1", ""},
		"our reader is not there yet": {func(c *Comparison) {
			c.Theirs(theirs(5, 0))
			c.Settle(Round{Confirmed: 6, Ends: end(1), Whole: true, Flushed: 9})
		}, "theirs 1", ""},
		"additional": {func(c *Comparison) {
			c.Theirs(theirs(5, 0))
			c.Passed(9)
			c.Settle(Round{Confirmed: 6, Ends: end(1), Whole: true, Flushed: 9})
		}, "theirs 1, additional 1", ""},
		"a second start: perhaps of a commit between": {func(c *Comparison) {
			c.Begin(8)
			c.Theirs(theirs(7, 0))
			c.Passed(9)
			c.Settle(Round{Confirmed: 6, Ends: end(1), Whole: true, Flushed: 9})
		}, "theirs 1, earlier 1", ""},
		"a second start: judged again once that is confirmed": {func(c *Comparison) {
			c.Begin(8)
			c.Settle(Round{Confirmed: 8, Ends: end(0), Whole: true, Flushed: 9})
			c.Theirs(theirs(10, 0))
			c.Passed(11)
			c.Settle(Round{Confirmed: 8, Ends: end(1), Whole: true, Flushed: 11})
		}, "theirs 1, additional 1", ""},
		"bad here, published there": {func(c *Comparison) {
			ev := ours(1)
			ev.Bad = "null_key"
			c.Ours(ev)
			c.Theirs(theirs(1, 0))
		}, "ours 1, theirs 1, different 1", "bad event here: null_key"},
		"bad here, nothing there": {func(c *Comparison) {
			ev := ours(1)
			ev.Bad = "null_key"
			c.Ours(ev)
			c.Settle(Round{Confirmed: 6, Ends: end(0), Whole: true, Flushed: 9})
		}, "ours 1, bad 1", ""},
		"without an id": {func(c *Comparison) {
			c.Theirs(theirs(1, 0, func(r *kgo.Record) { r.Headers = r.Headers[1:] }))
		}, "theirs 1, withoutid 1", ""},
		"an id twice": {func(c *Comparison) {
			first, second := ours(1), ours(1, func(r *kgo.Record) { r.Value = []byte("second") })
			second.At.Seq = 1
			c.Ours(first)
			c.Ours(second)
			c.Theirs(theirs(1, 0))
			c.Theirs(theirs(1, 1, func(r *kgo.Record) { r.Value = []byte("second") }))
			c.Theirs(theirs(1, 2))
			c.Settle(Round{Confirmed: 6, Ends: end(3), Whole: true, Flushed: 9})
		}, "ours 2, theirs 3, equal 2, repeated 1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := begun(Options{}, 1)
			tt.do(c)
			r := c.Report()
			var parts []string
			for _, p := range r.Parts {
				parts = append(parts, p.Part)
			}
			separator := ", "
			if !strings.Contains(tt.parts, ",") && !strings.Contains(tt.parts, ":") && len(parts) > 1 {
				separator = " "
			}
			if got := counts(r); got != tt.want || strings.Join(parts, separator) != tt.parts {
				t.Errorf("%s; %q; want %s; %q", got, parts, tt.want, tt.parts)
			}
			if n := r.Differences(); n != int64(len(r.Examples)) {
				t.Errorf("%d differences, %d examples", n, len(r.Examples))
			}
		})
	}
}

func TestByContent(t *testing.T) {
	c := begun(Options{ByContent: true}, 1)
	plain := func(r *kgo.Record) { r.Headers = nil }
	for id := range 3 {
		c.Ours(ours(id, plain))
	}
	c.Theirs(theirs(0, 0, plain))
	c.Theirs(theirs(1, 1, plain, func(r *kgo.Record) { r.Value = []byte("else") }))
	c.Theirs(theirs(2, 2, plain))
	c.Passed(9)
	c.Settle(Round{Confirmed: 6, Ends: end(3), Whole: true, Flushed: 9})
	if got := counts(c.Report()); got != "ours 3, theirs 3, equal 2, missing 1, additional 1" {
		t.Error(got)
	}
}

// Events of equal contents cost no more than others: with a look at each of the same, these take minutes.
func TestManyOfTheSame(t *testing.T) {
	const n = 200_000
	c := begun(Options{ByContent: true, Limit: 1 << 30}, 1)
	same := func(r *kgo.Record) { r.Headers, r.Value = nil, []byte("same") }
	for i := range n {
		ev := ours(5, same)
		ev.At.Seq = uint32(i)
		c.Ours(ev)
	}
	for i := range n {
		c.Theirs(theirs(5, int64(i), same))
	}
	c.Theirs(theirs(5, n, same))
	c.Settle(Round{Confirmed: 6, Ends: end(n + 1), Whole: true, Flushed: 9})
	if got := counts(c.Report()); got != fmt.Sprintf("ours %d, theirs %d, equal %d, repeated 1", n, n+1, n) {
		t.Error(got)
	}
}

// Headers with any names cost no memory for each.
func TestPartsAreBounded(t *testing.T) {
	c := begun(Options{}, 1)
	for i := 1; i <= 1000; i++ {
		c.Ours(ours(i))
		c.Theirs(theirs(i, int64(i), func(r *kgo.Record) { r.Headers = append(r.Headers, header(fmt.Sprint("h", i), "x")) }))
	}
	if parts := c.Report().Parts; len(parts) != mostParts+1 || parts[0] != (Part{"others", 1000 - mostParts}) {
		t.Errorf("%d parts, the first %v", len(parts), parts[0])
	}
}

// The examples in a report have a bound.
func TestExamplesAreShort(t *testing.T) {
	c := begun(Options{}, 1)
	c.Ours(ours(1, func(r *kgo.Record) { r.Value = []byte(strings.Repeat("ä", 4000)) }))
	c.Theirs(theirs(1, 0, func(r *kgo.Record) { r.Value = append([]byte{0xff}, make([]byte, 4000)...) }))
	ex := c.Report().Examples[0]
	if got := *ex.Ours.Value; len(got) > longest+3 || !strings.HasPrefix(got, "ää") || !strings.HasSuffix(got, "…") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	if got := *ex.Theirs.Value; len(got) > 2*longest || !strings.HasPrefix(got, "base64:/w") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}
