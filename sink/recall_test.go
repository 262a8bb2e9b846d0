package sink

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// half is a transaction of two events and the mark, each to a partition of its own.
type half struct {
	*testing.T
	broker *kafkatest.Broker
}

func newHalf(t *testing.T, version int16) half {
	t.Helper()
	h := half{t, kafkatest.Start(t, kafkatest.Apache())}
	h.broker.SetFeature(t, "transaction.version", version)
	h.broker.CreateTopic(t, "t", 2, nil)
	h.broker.CreateTopic(t, marks, 1, nil)
	return h
}

func (h half) transactions() *Transactions {
	h.Helper()
	cfg := *DefaultOptions()
	cfg.Brokers = h.broker.Brokers
	x := must.Get(NewTransactions(cfg, "tx"))(h.T)
	h.Cleanup(x.Close)
	return x
}

func entriesWith(texts ...string) (entries []Entry) {
	for _, text := range texts {
		for p := range 2 {
			ev := event("t", "a", int32(p), p)
			ev.Record.Value = fmt.Appendf(nil, "%s %d", text, p)
			entries = append(entries, Entry{Event: ev})
		}
	}
	return entries
}

func (h half) commit(x *Transactions, text string) {
	h.Helper()
	if refused, err := x.Transact(deadline(h.T), entriesWith(text), mark(text)); err != nil || len(refused) > 0 {
		h.Fatal(refused, err)
	}
}

// leaveOpen writes all of a transaction, and does not end it.
func (h half) leaveOpen(x *Transactions, texts ...string) {
	h.Helper()
	rounds, refused, err := x.plan(deadline(h.T), entriesWith(texts...))
	if err != nil || len(refused) > 0 {
		h.Fatal(refused, err)
	}
	if failed, err := x.write(deadline(h.T), must.Get(x.withMark(deadline(h.T), rounds, mark(texts[0])))(h.T)); err != nil || len(failed) > 0 {
		h.Fatal(failed, err)
	}
}

// foreign writes records of another producer to both partitions, more than the first look
// reads. The producer's clock is ahead by so much.
func (h half) foreign(ahead time.Duration) {
	h.Helper()
	client := h.broker.Client(h.T, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	var records []*kgo.Record
	for n := range int32(2 * 200) {
		records = append(records, &kgo.Record{Topic: "t", Partition: n % 2, Value: []byte("foreign"), Timestamp: time.Now().Add(ahead)})
	}
	must.OK(h.T, client.ProduceSync(deadline(h.T), records...).FirstErr())
}

// doubt is the last aborted transaction, from the marks' partition.
func (h half) doubt() (d checkpoint.Doubtful) {
	h.Helper()
	client := h.broker.Client(h.T)
	defer client.Close()
	log := must.Get(kafkalog.Open(deadline(h.T), client, marks, 0))(h.T)[0]
	_, end := log.Bounds()
	for _, r := range must.Get(kafkalog.Scan(deadline(h.T), log.Raw(), 0, end, func(*kgo.Record) bool { return true }))(h.T) {
		switch {
		case !r.Attrs.IsControl():
			d = checkpoint.Doubtful{Saved: checkpoint.Checkpoint{SavedAt: time.Now()}, Producer: r.ProducerID, Epoch: r.ProducerEpoch}
			d.Written = must.Get(checkpoint.ParseWritten(r.Headers[0].Value))(h.T)
		case !kafkalog.Commits(r):
			d.Aborted = r.ProducerEpoch
		}
	}
	return d
}

// committed are the texts of ours in each partition, up to the transaction "last".
func (h half) committed() map[int32][]string {
	h.Helper()
	in := map[int32][]string{}
	for _, r := range h.broker.Consume(h.T, []string{"t"}, func(records []*kgo.Record) bool {
		ends := 0
		for _, r := range records {
			if strings.HasPrefix(string(r.Value), "last") {
				ends++
			}
		}
		return ends == 2
	}) {
		if text, ours := strings.CutSuffix(string(r.Value), fmt.Sprint(" ", r.Partition)); ours {
			in[r.Partition] = append(in[r.Partition], text)
		}
	}
	return in
}

// A coordinator commits a half of a transaction, and loses the decision. The
// successor aborts the rest. Records visible to consumers are not written again.
func TestWhatCountsOfATransactionIsLeftOut(t *testing.T) {
	for name, ended := range map[string]func(topic string, partition int32) bool{
		"nothing":            func(string, int32) bool { return false },
		"the mark":           func(topic string, _ int32) bool { return topic == marks },
		"the mark and event": func(_ string, partition int32) bool { return partition == 0 },
		"an event":           func(topic string, partition int32) bool { return topic == "t" && partition == 1 },
		"all":                func(string, int32) bool { return true },
	} {
		for _, version := range []int16{1, 2} {
			t.Run(fmt.Sprintf("%s with version %d", name, version), func(t *testing.T) {
				h := newHalf(t, version)
				x := h.transactions()
				must.OK(t, x.Claim(deadline(t)))
				h.commit(x, "first")
				h.leaveOpen(x, "half")
				h.foreign(10 * time.Minute)
				count, _ := h.broker.EndHalf(t, "tx", version, func(topic string, p int32) bool { return topic == "t" && ended(topic, p) })
				if ended(marks, 0) {
					h.broker.EndHalf(t, "tx", version, func(topic string, _ int32) bool { return topic == marks })
				}
				h.foreign(0)

				x = h.transactions()
				must.OK(t, x.Claim(deadline(t)))
				doubt := h.doubt()
				for range 2 { // the second time behind later records
					torn, err := x.Recall(deadline(t), []checkpoint.Doubtful{doubt})
					if err != nil || len(torn) > 0 != (count > 0) || len(x.visible) != count {
						t.Fatalf("%d torn, %d visible, %v; want %d visible", len(torn), len(x.visible), err, count)
					}
					h.commit(x, "between")
				}
				h.commit(x, "half")
				x.Settled()
				h.commit(x, "last")
				for p, texts := range h.committed() {
					want := []string{"first", "between", "between", "half", "last"}
					if ended("t", p) {
						want = []string{"first", "half", "between", "between", "last"}
					}
					if !slices.Equal(texts, want) {
						t.Errorf("partition %d has %q, want %q", p, texts, want)
					}
				}
			})
		}
	}
}

// The transaction with the rest is ended by halves, too, and has new events.
func TestWhatCountsOfTwoTransactionsIsLeftOut(t *testing.T) {
	for _, version := range []int16{1, 2} {
		for second := range int32(2) {
			t.Run(fmt.Sprintf("partition 0 and then %[2]d with version %[1]d", version, second), func(t *testing.T) {
				h := newHalf(t, version)
				x := h.transactions()
				must.OK(t, x.Claim(deadline(t)))
				h.commit(x, "first")
				h.leaveOpen(x, "half")
				h.broker.EndHalf(t, "tx", version, func(topic string, p int32) bool { return topic == "t" && p == 0 })
				x = h.transactions()
				must.OK(t, x.Claim(deadline(t)))
				doubts := must.Get(x.Recall(deadline(t), []checkpoint.Doubtful{h.doubt()}))(t)
				h.leaveOpen(x, "half", "new")
				h.broker.EndHalf(t, "tx", version, func(topic string, p int32) bool { return topic == "t" && p == second })
				x = h.transactions()
				must.OK(t, x.Claim(deadline(t)))
				must.Get(x.Recall(deadline(t), append(doubts, h.doubt())))(t)
				h.commit(x, "half")
				h.commit(x, "new")
				x.Settled()
				h.commit(x, "last")
				for p, texts := range h.committed() {
					if want := []string{"first", "half", "new", "last"}; !slices.Equal(texts, want) {
						t.Errorf("partition %d has %q, want %q", p, texts, want)
					}
				}
			})
		}
	}
}

// The mark of the transaction was written, and the events were not. The last
// records in their partitions are of the previous transaction, with the same epoch
// under transaction.version 1. The events are the same, too.
func TestWhatCountsOfTheTransactionBeforeIsNotLeftOut(t *testing.T) {
	for _, version := range []int16{1, 2} {
		h := newHalf(t, version)
		x := h.transactions()
		must.OK(t, x.Claim(deadline(t)))
		h.commit(x, "tick")
		rounds, _, err := x.plan(deadline(t), entriesWith("tick"))
		must.OK(t, err)
		round := must.Get(x.withMark(deadline(t), rounds, mark("tick")))(t)[0]
		must.Get(x.write(deadline(t), [][]placed{round[len(round)-1:]}))(t)
		x = h.transactions()
		must.OK(t, x.Claim(deadline(t)))
		if torn := must.Get(x.Recall(deadline(t), []checkpoint.Doubtful{h.doubt()}))(t); len(torn) > 0 {
			t.Errorf("version %d: %+v is torn", version, torn)
		}
		h.commit(x, "tick")
		h.commit(x, "last")
		for p, texts := range h.committed() {
			if want := []string{"tick", "tick", "last"}; !slices.Equal(texts, want) {
				t.Errorf("version %d: partition %d has %q, want %q", version, p, texts, want)
			}
		}
	}
}

// Without the headers of the position two events may have the same bytes. If
// consumers see only the first, the second is not left out.
func TestTheSameEventTwiceIsLeftOutOnce(t *testing.T) {
	h := newHalf(t, 2)
	x := h.transactions()
	must.OK(t, x.Claim(deadline(t)))
	h.commit(x, "first")
	h.leaveOpen(x, "same")
	h.broker.EndHalf(t, "tx", 2, func(topic string, p int32) bool { return topic == "t" && p == 0 })
	x = h.transactions()
	must.OK(t, x.Claim(deadline(t)))
	must.Get(x.Recall(deadline(t), []checkpoint.Doubtful{h.doubt()}))(t)
	if refused, err := x.Transact(deadline(t), entriesWith("same", "same"), mark("same")); err != nil || len(refused) > 0 {
		t.Fatal(refused, err)
	}
	h.commit(x, "same")
	x.Settled()
	h.commit(x, "last")
	for p, texts := range h.committed() {
		if want := []string{"first", "same", "same", "same", "last"}; !slices.Equal(texts, want) {
			t.Errorf("partition %d has %q, want %q", p, texts, want)
		}
	}
}

func TestSight(t *testing.T) {
	const commit, abort = kmsg.ControlRecordKeyTypeCommit, kmsg.ControlRecordKeyTypeAbort
	at := time.Date(2026, 11, 24, 3, 0, 0, 0, time.UTC)
	record := func(epoch int16) *kgo.Record { return &kgo.Record{ProducerID: 7, ProducerEpoch: epoch} }
	marker := func(how kmsg.ControlRecordKeyType, epoch int16) *kgo.Record {
		key := kmsg.ControlRecordKey{Type: how}
		return &kgo.Record{ProducerID: 7, ProducerEpoch: epoch, Key: key.AppendTo(nil),
			Attrs: kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Transactional: true, Control: true})}
	}
	foreign := func(after time.Duration) *kgo.Record { return &kgo.Record{ProducerID: 8, Timestamp: at.Add(after)} }
	before, ours := marker(commit, 4), record(4)
	look := func(log []*kgo.Record, marked bool) (seen, visited int) {
		s := sight{Doubtful: checkpoint.Doubtful{Producer: 7, Epoch: 4}, over: at.Add(time.Minute), marked: marked}
		for _, r := range log {
			visited++
			if !s.visit(r) {
				break
			}
		}
		return len(s.seen), visited
	}
	for name, c := range map[string]struct {
		log           []*kgo.Record
		seen, visited int
	}{
		"nothing":                         {[]*kgo.Record{before, foreign(0)}, 0, 2},
		"nothing, and others":             {append([]*kgo.Record{before}, slices.Repeat([]*kgo.Record{foreign(time.Hour)}, laterInARow+9)...), 0, 1 + laterInARow},
		"behind a clock that is ahead":    {[]*kgo.Record{ours, foreign(time.Hour), foreign(time.Hour), marker(commit, 4)}, 1, 4},
		"aborted":                         {[]*kgo.Record{before, ours, foreign(0), ours, marker(abort, 5), record(5)}, 0, 5},
		"aborted before it came here":     {[]*kgo.Record{before, marker(abort, 5), record(5)}, 0, 2},
		"committed":                       {[]*kgo.Record{before, ours, ours, marker(commit, 4), marker(abort, 5)}, 2, 4},
		"committed, with version 2":       {[]*kgo.Record{before, ours, ours, marker(commit, 5), record(5)}, 2, 4},
		"after an attempt":                {[]*kgo.Record{ours, marker(abort, 4), ours, ours, marker(commit, 4)}, 2, 5},
		"after an attempt with version 2": {[]*kgo.Record{record(3), marker(abort, 4), ours, marker(commit, 5)}, 1, 4},
		"before one that was aborted":     {[]*kgo.Record{ours, ours, marker(commit, 4), ours, ours, ours, marker(abort, 5)}, 2, 3},
		"aborted, with a later one":       {[]*kgo.Record{record(5), marker(commit, 6)}, 0, 1},
	} {
		if seen, visited := look(c.log, false); seen != c.seen || visited != c.visited {
			t.Errorf("%s: %d seen after %d records, want %d after %d", name, seen, visited, c.seen, c.visited)
		}
	}
	late := []*kgo.Record{foreign(time.Hour), ours, foreign(time.Hour), marker(commit, 4), marker(abort, 5)}
	if seen, visited := look(late, true); seen != 1 || visited != 4 {
		t.Errorf("where a marker must come: %d seen after %d records, whatever time others give theirs", seen, visited)
	}
}

// An event with the same position is the same, whatever a new setting makes of the rest.
func TestIdentity(t *testing.T) {
	at := func(topic, seq, value string, more ...kgo.RecordHeader) *kgo.Record {
		return &kgo.Record{Topic: topic, Value: []byte(value), Headers: append(more,
			kgo.RecordHeader{Key: transform.HeaderLSN, Value: []byte("0/10")}, kgo.RecordHeader{Key: transform.HeaderSeq, Value: []byte(seq)})}
	}
	header := kgo.RecordHeader{Key: "more", Value: []byte("x")}
	for name, c := range map[string]struct {
		one, two *kgo.Record
		same     bool
	}{
		"settings": {at("t", "1", "a"), at("t", "1", "b", header), true},
		"place":    {at("t", "1", "a"), at("t", "2", "a"), false},
		"topic":    {at("t", "1", "a"), at("u", "1", "a"), false},
		"bytes":    {&kgo.Record{Value: []byte("a")}, &kgo.Record{Value: []byte("b")}, false},
		"bounds":   {&kgo.Record{Key: []byte("a")}, &kgo.Record{Value: []byte("a")}, false},
		"a letter": {&kgo.Record{Headers: []kgo.RecordHeader{{Key: headerError, Value: []byte("a")}}}, &kgo.Record{}, true},
	} {
		if same := identify(c.one) == identify(c.two); same != c.same {
			t.Errorf("%s: the same one: %t", name, same)
		}
	}
}

// Without the right to read, a transaction known to be torn stops the connector. Any other
// is taken for aborted, as nearly all are.
func TestRecallIsNotAllowed(t *testing.T) {
	acl := func(kind kmsg.ACLResourceType, name string, op kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kind, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true}
	}
	c := startCluster(t, kfake.SeedTopics(1, "t"), kfake.EnableSASL(), kfake.EnableACLs(), kfake.User("PLAIN", "cdc", "secret",
		acl(kmsg.ACLResourceTypeTopic, "t", kmsg.ACLOperationDescribe), acl(kmsg.ACLResourceTypeTopic, "t", kmsg.ACLOperationWrite),
		acl(kmsg.ACLResourceTypeTransactionalId, "tx", kmsg.ACLOperationWrite), acl(kmsg.ACLResourceTypeTransactionalId, "tx", kmsg.ACLOperationDescribe)))
	cfg := c.config()
	cfg.SASL = SASL{Mechanism: "PLAIN", Username: "cdc", Password: "secret"}
	x := must.Get(NewTransactions(cfg, "tx"))(t)
	t.Cleanup(x.Close)
	must.OK(t, x.Claim(deadline(t)))
	must.Get(x.Transact(deadline(t), nil, &kgo.Record{Topic: "t", Value: []byte("there is something to read")}))(t)
	doubt := checkpoint.Doubtful{Written: checkpoint.Written{"t": {0: {}}}}
	if torn, err := x.Recall(deadline(t), []checkpoint.Doubtful{doubt}); err != nil || len(torn) > 0 {
		t.Errorf("%+v, %v; want nothing", torn, err)
	}
	doubt.Committed = true
	_, err := x.Recall(deadline(t), []checkpoint.Doubtful{doubt})
	if failure.ClassOf(err) != failure.Config || !strings.Contains(failure.RemedyOf(err), "--operation Read --topic 't'") {
		t.Errorf("%v, remedy %q; want a configuration error that says how to allow it", err, failure.RemedyOf(err))
	}
}

// Records no longer visible are written again.
func TestRecallOfATopicThatIsGone(t *testing.T) {
	_, x := startTransactions(t, 1)
	doubt := checkpoint.Doubtful{Committed: true, Written: checkpoint.Written{"gone": {0: {}, 1: {}, 2: {}, 3: {}}, "t": {7: {}}}}
	if torn, err := x.Recall(deadline(t), []checkpoint.Doubtful{doubt}); err != nil || len(torn) != 1 || x.visible != nil {
		t.Errorf("%d torn, %v, %d visible; want one, and nothing visible", len(torn), err, len(x.visible))
	}
}
