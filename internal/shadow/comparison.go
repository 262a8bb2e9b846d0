package shadow

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Options are the choices of a comparison.
type Options struct {
	// Limit is the memory for events of ours, in bytes, and the same again for records of
	// Debezium's.
	Limit int64
	// Examples is how many differing events of a kind, and with the same differing parts,
	// Report names.
	Examples int
	// ByContent pairs events by topic, key and value, for records without an id. A record
	// with another value is then missing and additional.
	ByContent bool
	// FramedKeys and FramedValues tell that keys or values begin with a zero byte and the
	// number of a schema.
	FramedKeys, FramedValues bool
}

// Comparison compares. It is for a single goroutine at a time.
type Comparison struct {
	opts Options

	// Ours: events in the order of commits, until Debezium has confirmed them.
	window      []*entry
	byID        map[sum]*twins // by identity
	windowBytes int64
	order       map[sum]*keyState
	from        pg.LSN // our reader's last start
	passed      pg.LSN

	// Theirs: records without an event of ours so far, in the order of reading.
	ahead      []*waiting
	aheadByID  map[sum][]*waiting
	aheadBytes int64
	// fence is the offset, by partition, from which on a record is judged: records before
	// may be of events that our reader has not seen. No fence: none is judged.
	fence  map[Place]int64
	counts map[string][]int // of partitions, by topic
	// gone is, by topic, the end of the commits whose records may be gone, unread.
	gone map[string]pg.LSN

	report Report
}

// Place is a partition.
type Place struct {
	Topic     string
	Partition int32
}

// waiting is a record of Debezium's without an event of ours.
type waiting struct {
	*kgo.Record // nil: matched
	id          sum
}

// keyState is the last event of a key, in our order, with a record there.
type keyState struct {
	at        pg.Position
	partition int32
	offset    int64
	refs      int // events in the window
}

// disorder takes one more pair of event and record, and tells whether the two orders differ.
func (s *keyState) disorder(at pg.Position, r *kgo.Record) bool {
	later, behind := at.Compare(s.at) > 0, r.Offset > s.offset
	both := !s.at.IsZero() && s.partition == r.Partition
	if later || s.at.IsZero() {
		s.at, s.partition, s.offset = at, r.Partition, r.Offset
	}
	return both && later != behind
}

// New returns an empty comparison.
func New(opts Options) *Comparison {
	return &Comparison{opts: opts, byID: make(map[sum]*twins), order: make(map[sum]*keyState), aheadByID: make(map[sum][]*waiting),
		fence: make(map[Place]int64), counts: make(map[string][]int), gone: make(map[string]pg.LSN), report: Report{parts: make(map[string]int64), shown: make(map[string]int)}}
}

// Begin tells that our reader sees the commits from the position on, and none between its last
// one and the position.
func (c *Comparison) Begin(at pg.LSN) {
	c.from, c.passed = at, max(c.passed, at)
	clear(c.fence)
	c.report.Starts++
}

// Passed tells that our reader has seen all commits that end at or before the position.
func (c *Comparison) Passed(at pg.LSN) { c.passed = max(c.passed, at) }

// HasPassed tells whether our reader has.
func (c *Comparison) HasPassed(at pg.LSN) bool { return c.passed >= at }

// Full tells which side must not be read on for now.
func (c *Comparison) Full() (ours, theirs bool) {
	return c.windowBytes >= c.opts.Limit, c.aheadBytes >= c.opts.Limit
}

// Ours takes an event, in the order of the log. The record is kept.
func (c *Comparison) Ours(ev Event) {
	c.report.Ours++
	e := &entry{Event: ev, bytes: entryBytes + size(ev.Record)}
	e.id, _ = c.identity(ev.Record)
	if ev.Record.Key != nil {
		e.key = sumOf([]byte(ev.Record.Topic), ev.Record.Key)
		if c.order[e.key] == nil {
			c.order[e.key] = &keyState{}
		}
		c.order[e.key].refs++
	}
	if c.byID[e.id] == nil {
		c.byID[e.id] = &twins{}
	}
	c.byID[e.id].add(e)
	c.window = append(c.window, e)
	c.windowBytes += e.bytes
	for _, w := range c.aheadByID[e.id] {
		c.pair(c.byID[e.id], w.Record)
		c.aheadBytes -= size(w.Record)
		w.Record = nil
	}
	delete(c.aheadByID, e.id)
}

// Theirs takes a record of Debezium's, in the order of its partition. The record is kept.
func (c *Comparison) Theirs(r *kgo.Record) {
	c.report.Theirs++
	id, ok := c.identity(r)
	if !ok {
		c.report.WithoutID++
		return
	}
	if same := c.byID[id]; same != nil {
		c.pair(same, r)
		return
	}
	w := &waiting{r, id}
	c.ahead = append(c.ahead, w)
	c.aheadByID[id] = append(c.aheadByID[id], w)
	c.aheadBytes += size(r)
}

// pair matches the record with the first event of the identity that has none yet. If all have
// one, the record is a repetition.
func (c *Comparison) pair(same *twins, r *kgo.Record) {
	if e := same.open; e != nil {
		same.open = e.next
		c.match(e, r)
		return
	}
	there := whole(r)
	for e := same.first; e != nil; e = e.next {
		if e.there == there {
			c.report.Repeated++
			return
		}
	}
	c.report.differ(c.opts.Examples, Example{Kind: Different, At: same.first.At.CommitLSN.String(), Parts: []string{"repetition"}, Theirs: read(r)})
	c.report.Different++
}

// match compares the event with its record.
func (c *Comparison) match(e *entry, r *kgo.Record) {
	parts := c.differing(e.Record, r)
	if e.Bad != "" {
		parts = []string{"bad event here: " + e.Bad}
	}
	if state := c.order[e.key]; state != nil && r.Topic == e.Record.Topic {
		if state.disorder(e.At, r) {
			parts = append(parts, "order in the key")
		}
	}
	if len(parts) == 0 {
		c.report.Equal++
	} else {
		kind := Different
		if onlyNumbers(parts) {
			kind = Renumbered
			c.report.Renumbered++
		} else {
			c.report.Different++
		}
		c.report.differ(c.opts.Examples, Example{Kind: kind, At: e.At.CommitLSN.String(), Parts: parts, Ours: shown(e.Record), Theirs: read(r)})
	}
	c.windowBytes -= e.bytes - entryBytes
	e.Record, e.there, e.bytes = nil, whole(r), entryBytes
}

// Partitions tells the number of a topic's partitions.
func (c *Comparison) Partitions(topic string, n int) {
	if !slices.Contains(c.counts[topic], n) {
		c.counts[topic] = append(c.counts[topic], n)
	}
}

// Lost tells of a topic without some records, unread, of commits before the position: by retention,
// or as the topic was deleted, or deleted and made again. Offsets may begin anew. Records read from
// then on must come later.
func (c *Comparison) Lost(topic string, before pg.LSN) {
	c.gone[topic] = max(c.gone[topic], before)
	for place := range c.fence {
		if place.Topic == topic {
			delete(c.fence, place)
		}
	}
	for _, state := range c.order {
		state.at = pg.Position{}
	}
}

// Round is a look at all sides. The questions are put in the order of the members.
type Round struct {
	// Confirmed is the position of Debezium's slot: each earlier commit is published.
	Confirmed pg.LSN
	// Ends are the ends of the topics' partitions.
	Ends map[Place]int64
	// Flushed is the end of the log: records before Ends are of commits before Flushed.
	Flushed pg.LSN
	// Whole tells that the records before Ends were taken, all of them.
	Whole bool
}

// Settle judges events without a record, and records without an event. No record
// beyond the round's ends was taken before.
func (c *Comparison) Settle(r Round) {
	ours, theirs := c.Full()
	reached := c.HasPassed(r.Flushed)
	jammed := ours && theirs && !r.Whole && !reached
	if c.from > 0 && r.Confirmed >= c.from {
		for place, end := range r.Ends {
			if _, known := c.fence[place]; !known || jammed {
				c.fence[place] = end
			}
		}
	}
	if r.Whole || jammed {
		c.forget(r, jammed)
	}
	if reached {
		c.judge()
	}
	c.compact()
}

// forget judges events confirmed by Debezium, and forgets them. Where records may not be
// read yet, events without one stay unjudged.
func (c *Comparison) forget(r Round, unread bool) {
	n := 0
	for ; n < len(c.window) && c.window[n].At.CommitLSN < r.Confirmed; n++ {
		e := c.window[n]
		switch {
		case e.matched():
		case e.Bad != "":
			c.report.Bad++
		case unread || e.At.CommitLSN < c.gone[e.Record.Topic]:
			c.report.Unjudged++
		default:
			c.report.Missing++
			c.report.differ(c.opts.Examples, Example{Kind: Missing, At: e.At.CommitLSN.String(), Ours: shown(e.Record)})
		}
		c.drop(e)
		c.window[n] = nil
	}
	c.window = c.window[n:]
}

// drop removes the event, the first of its identity.
func (c *Comparison) drop(e *entry) {
	if c.byID[e.id].drop() {
		delete(c.byID, e.id)
	}
	if state := c.order[e.key]; state != nil {
		if state.refs--; state.refs == 0 {
			delete(c.order, e.key)
		}
	}
	c.windowBytes -= e.bytes
}

// judge decides on all waiting records: our reader has passed their commits.
func (c *Comparison) judge() {
	for _, w := range c.ahead {
		if w.Record == nil {
			continue
		}
		fence, known := c.fence[Place{w.Topic, w.Partition}]
		if known && w.Offset >= fence {
			c.report.Additional++
			c.report.differ(c.opts.Examples, Example{Kind: Additional, Theirs: read(w.Record)})
		} else {
			c.report.Earlier++
		}
		c.aheadBytes -= size(w.Record)
	}
	c.ahead = nil
	clear(c.aheadByID)
}

// compact removes matched records.
func (c *Comparison) compact() {
	c.ahead = slices.DeleteFunc(c.ahead, func(w *waiting) bool { return w.Record == nil })
}
