package shadow

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// world is a log, with Debezium and our reader at their places.
type world struct {
	r   *rand.Rand
	c   *Comparison
	log []Event // of the commits 1, 2, …

	published int // Debezium's place in the log
	confirmed int
	topic     [partitions][]*kgo.Record
	taken     [partitions]int
	read      int // ours
	from      int // our reader's first commit

	faults map[int]string // by commit
	done   map[int]bool   // faults that took place
}

func (w *world) place(p int) Place { return Place{topic, int32(p)} }

// publish writes the next record of Debezium's, with a fault, if planned.
func (w *world) publish() {
	if w.published == len(w.log) {
		return
	}
	ev := w.log[w.published]
	w.published++
	id := int(ev.At.CommitLSN)
	rec := *ev.Record
	rec.Partition = sink.PartitionOf(rec.Key, partitions)
	switch w.faults[id] {
	case "missing":
		return
	case "different":
		rec.Value = []byte("planted")
	case "additional":
		if !w.done[id] {
			other := rec
			other.Headers = []kgo.RecordHeader{header("id", fmt.Sprint("extra", id))}
			w.append(&other)
		}
	}
	w.done[id] = true
	w.append(&rec)
}

func (w *world) append(rec *kgo.Record) {
	p := rec.Partition
	rec.Offset = int64(len(w.topic[p]))
	w.topic[p] = append(w.topic[p], rec)
}

// restart takes Debezium back to the confirmed position.
func (w *world) restart() { w.published = w.confirmed }

func (w *world) commit() {
	id := len(w.log) + 1
	key := []byte(fmt.Sprint("k", w.r.IntN(5)))
	w.log = append(w.log, Event{At: pg.Position{CommitLSN: pg.LSN(id)}, Record: &kgo.Record{Topic: topic, Partition: transform.PartitionByKey,
		Key: key, Value: []byte("v"), Headers: []kgo.RecordHeader{header("id", fmt.Sprint(id))}}})
}

// readOurs reads up to n commits, as far as there is room.
func (w *world) readOurs(n int) {
	for ; n > 0 && w.read < len(w.log); n-- {
		if full, _ := w.c.Full(); full {
			return
		}
		ev := w.log[w.read]
		rec := *ev.Record
		ev.Record = &rec
		w.c.Ours(ev)
		w.read++
		w.c.Passed(pg.LSN(w.read + 1)) // the end of the commit
	}
}

// round looks, reads the topic, lets our reader go on, and settles.
func (w *world) round(ours int) {
	r := Round{Confirmed: pg.LSN(w.confirmed + 1), Ends: map[Place]int64{}, Whole: true}
	for p := range w.topic {
		r.Ends[w.place(p)] = int64(len(w.topic[p]))
	}
	r.Flushed = pg.LSN(len(w.log) + 1)
	for p := range w.topic {
		end := int(r.Ends[w.place(p)])
		if w.r.IntN(8) == 0 { // a broker does not answer
			end = w.taken[p] + w.r.IntN(end-w.taken[p]+1)
		}
		for w.taken[p] < end {
			if _, full := w.c.Full(); full {
				break
			}
			rec := *w.topic[p][w.taken[p]]
			w.c.Theirs(&rec)
			w.taken[p]++
		}
		r.Whole = r.Whole && w.taken[p] == int(r.Ends[w.place(p)])
		w.live()
	}
	w.readOurs(ours)
	w.c.Settle(r)
}

// live lets writers and Debezium go on while the comparison reads.
func (w *world) live() {
	for range w.r.IntN(4) {
		w.commit()
	}
	for range w.r.IntN(6) {
		w.publish()
	}
	switch w.r.IntN(12) {
	case 0, 1, 2:
		w.confirmed = max(w.confirmed, w.published) // acknowledged by the brokers
	case 3:
		w.restart()
	}
}

func (w *world) begin() {
	w.from = len(w.log)
	w.read = w.from
	w.c.Begin(pg.LSN(w.from + 1))
}

// A comparison names each planted difference behind the fence, and no other,
// whatever the pace of the three, and through restarts of Debezium.
func TestAgainstAModel(t *testing.T) {
	var found, judged int64
	for seed := range uint64(600) {
		w := &world{r: rand.New(rand.NewPCG(seed, 7)), faults: map[int]string{}, done: map[int]bool{}}
		limit := int64(1 << 30)
		small := seed%3 == 0
		if small {
			limit = int64(2000 + w.r.IntN(8000))
		}
		w.c = New(Options{Limit: limit, Examples: 5})
		w.c.Partitions(topic, partitions)
		for range w.r.IntN(30) {
			w.live()
		}
		for p := range w.topic {
			w.taken[p] = len(w.topic[p]) // as at the start of a comparison
		}
		w.begin()
		restarts := 0
		faulty := seed%2 == 0
		for range 40 {
			if faulty && w.r.IntN(4) == 0 {
				w.faults[len(w.log)+1+w.r.IntN(3)] = []string{"missing", "different", "additional"}[w.r.IntN(3)]
			}
			w.live()
			w.round(w.r.IntN(12))
			if w.r.IntN(15) == 0 {
				restarts++
				w.begin()
			}
		}
		for n := 0; n < 20 || n < 1000 && w.c.Report().Pending > 0; n++ { // all come to an end
			for w.published < len(w.log) {
				w.publish()
			}
			w.confirmed = len(w.log)
			w.quietRound()
		}
		r := w.c.Report()
		var missing, different, additional int64
		for id, fault := range w.faults {
			if id <= w.from || id > len(w.log) {
				continue
			}
			switch fault {
			case "missing":
				missing++
			case "different":
				different++
			case "additional":
				additional++
			}
		}
		context := fmt.Sprintf("seed %d, small %v, %d starts: %s; planted since the last start: %d missing, %d different, %d additional",
			seed, small, r.Starts, counts(r), missing, different, additional)
		if r.Pending != 0 || r.Equal+r.Different+r.Missing+r.Unjudged != r.Ours {
			t.Fatalf("events without a verdict: %s", context)
		}
		if !faulty && r.Differences() != 0 {
			t.Fatalf("differences without a fault: %s: %+v", context, r.Examples)
		}
		if restarts == 0 && !small && (r.Missing != missing || r.Different != different || r.Additional+r.Earlier < additional || r.Additional > additional) {
			t.Fatalf("the planted differences: %s", context)
		}
		if restarts == 0 && !small {
			found, judged = found+r.Additional, judged+additional
		}
	}
	if found*2 < judged {
		t.Errorf("%d of %d additional records were judged", found, judged)
	}
	t.Logf("%d of %d additional records were judged", found, judged)
}

// quietRound is a round without faults of brokers.
func (w *world) quietRound() {
	r := Round{Confirmed: pg.LSN(w.confirmed + 1), Ends: map[Place]int64{}, Whole: true, Flushed: pg.LSN(len(w.log) + 1)}
	for p := range w.topic {
		r.Ends[w.place(p)] = int64(len(w.topic[p]))
		for w.taken[p] < len(w.topic[p]) {
			if _, full := w.c.Full(); full {
				r.Whole = false
				break
			}
			rec := *w.topic[p][w.taken[p]]
			w.c.Theirs(&rec)
			w.taken[p]++
		}
	}
	w.readOurs(len(w.log))
	w.c.Settle(r)
}
