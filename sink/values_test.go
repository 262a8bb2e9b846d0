package sink

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// largest is the size of the largest value in Kafka here.
const largest = 2000

// shelf keeps values. An attempt fails as often as failures says.
type shelf struct {
	renewed  []string
	mu       sync.Mutex
	values   map[string]string
	failures int
	puts     int
	err      error        // of failures
	before   func(string) // called before a value is kept
}

var errShelf = errors.New("the shelf is away")

func (s *shelf) Takes(bytes int) bool { return bytes > largest }
func (s *shelf) Parallel() int        { return 3 }

func (s *shelf) Put(_ context.Context, ev *transform.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.puts++
	if s.failures > 0 {
		s.failures--
		return s.err
	}
	sum := sha256.Sum256(ev.Record.Value)
	place := fmt.Sprintf("shelf/%s/%x", ev.ID, sum[:4])
	if s.values == nil {
		s.values = make(map[string]string)
	}
	if s.before != nil {
		s.before(place)
	}
	s.values[place] = string(ev.Record.Value)
	ev.Refer(transform.Claim{Place: place, Size: int64(len(ev.Record.Value)), SHA256: sum, Type: "text/plain"})
	return nil
}

func (s *shelf) Get(_ context.Context, ev *transform.Event) error {
	ref, _ := transform.ReferenceOf(&ev.Record)
	s.mu.Lock()
	defer s.mu.Unlock()
	value, ok := s.values[ref.Place]
	if !ok {
		return &transform.BadEvent{Reason: transform.ReasonClaimGone, Err: errors.New("gone")}
	}
	ev.Restore([]byte(value))
	return nil
}

func (s *shelf) Renew(_ context.Context, ev *transform.Event) error {
	ref, _ := transform.ReferenceOf(&ev.Record)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures > 0 {
		s.failures--
		return s.err
	}
	if _, ok := s.values[ref.Place]; !ok {
		return &transform.BadEvent{Reason: transform.ReasonClaimGone, Err: errors.New("gone")}
	}
	s.renewed = append(s.renewed, ref.Place)
	ev.Renew()
	return nil
}

// large makes the event's value large.
func large(ev *transform.Event) *transform.Event {
	ev.Record.Value = []byte(strings.Repeat(string(ev.Record.Value)+",", largest))
	return ev
}

// claimed are the values of a topic, through their references.
func (c *cluster) claimed(t *testing.T, s *shelf, topic string) (values []string) {
	t.Helper()
	for _, r := range c.read(t, topic, 1)[0] {
		value := string(r.Value)
		if ref, ok := transform.ReferenceOf(r); ok {
			value = s.values[ref.Place]
			if sha256.Sum256([]byte(value)) != ref.SHA256 || int64(len(value)) != ref.Size {
				t.Errorf("record %d refers to another value", r.Offset)
			}
		}
		values = append(values, value[:min(len(value), 3)])
	}
	return values
}

// valueNews notes the news of an observer.
type valueNews struct {
	unobserved
	reasons []error
}

func (s *valueNews) ValuesWaiting(reason error) { s.reasons = append(s.reasons, reason) }

// The store is down at first: the event waits, visibly, and nothing behind passes it. A value is
// there before its record.
func TestDeliverKeepsLargeValues(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "a"))
	s, news := &shelf{failures: 4, err: errShelf}, &valueNews{} // all values of the first attempt
	s.before = func(place string) {
		for _, r := range c.read(t, "a", 1)[0] {
			if ref, ok := transform.ReferenceOf(r); ok && ref.Place == place {
				t.Errorf("the record is there before its value: %s", place)
			}
		}
	}
	k, _ := newKafka(t, c.config(), WithValues(s), WithObserver(news))
	evs := events("a", 12)
	var want []string
	for i, ev := range evs {
		if i%3 == 1 {
			large(ev)
		}
		want = append(want, string(ev.Record.Value[:min(len(ev.Record.Value), 3)]))
	}
	deliver(t, k, evs)
	if got := c.claimed(t, s, "a"); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if len(s.values) != 4 || len(news.reasons) < 2 || !errors.Is(news.reasons[0], errShelf) || news.reasons[len(news.reasons)-1] != nil {
		t.Errorf("%d values, the observer is told %v", len(s.values), news.reasons)
	}
	if _, value := evs[1].Plain(); len(value) <= largest || len(evs[1].PlainHeaders()) != 1 {
		t.Error("the plain form is lost")
	}
}

// An event larger than any record of Kafka's flows.
func TestDeliverKeepsValuesBeyondKafkasLimit(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "a"))
	k, _ := newKafka(t, c.config(), WithValues(&shelf{}))
	ev := event("a", "k", 0, 1)
	ev.Record.Value = make([]byte, 3<<20)
	deliver(t, k, []*transform.Event{ev})
}

func TestDeliverStopsForRights(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "a"))
	s := &shelf{failures: 1 << 30, err: failure.Configf("give it the right", "denied")}
	k, _ := newKafka(t, c.config(), WithValues(s))
	err := k.Deliver(deadline(t), []*transform.Event{large(event("a", "k", 0, 1))}, noReject(t))
	if failure.ClassOf(err) != failure.Config || failure.RemedyOf(err) != "give it the right" || s.puts != 1 {
		t.Errorf("got %v after %d attempts", err, s.puts)
	}
}

// A value beyond the store's own limit is a bad event, and so is no other of its batch.
func TestDeliverRejectsWhatTheStoreRefuses(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "a"))
	s := &shelf{failures: 1, err: &transform.BadEvent{Reason: transform.ReasonRecordTooLarge, Err: errors.New("beyond the store's limit")}}
	k, _ := newKafka(t, c.config(), WithValues(s))
	evs := events("a", 3)
	var refused rejects
	large(evs[1])
	must.OK(t, k.Deliver(deadline(t), evs, refused.reject))
	if got := c.claimed(t, s, "a"); !slices.Equal(got, []string{"0", "2"}) || !slices.Equal(refused, rejects{{"id-1", transform.ReasonRecordTooLarge}}) {
		t.Errorf("got %v, refused %v", got, refused)
	}
}

// The value in the form of a schema is kept for the record; that of the row, for the dead letter.
func TestDeadLetterRefersToTheRowsValue(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "a", "dead"))
	s := new(shelf)
	k, _ := newKafka(t, c.config(), WithValues(s), WithEncoder(&upper{}))
	ev := large(event("a", "k", 0, 1))
	deliver(t, k, []*transform.Event{ev})
	must.OK(t, k.DeadLetter(deadline(t), ev, &transform.BadEvent{Reason: transform.ReasonRejectedByBroker, Err: errors.New("no")}))
	if a, dead := c.claimed(t, s, "a"), c.claimed(t, s, "dead"); a[0] != "enc" || dead[0] != "1,1" {
		t.Errorf("record %v, dead letter %v", a, dead)
	}
	letter, ok := ReadLetter(c.read(t, "dead", 1)[0][0])
	if !ok || letter.Reason != string(transform.ReasonRejectedByBroker) || len(letter.Headers) != 5 {
		t.Fatalf("letter %v, headers %v", letter.Reason, letter.Headers)
	}
	// The letter is published again, in the form of the schema.
	again := &transform.Event{ID: letter.ID, Record: kgo.Record{Topic: "a", Key: letter.Key, Value: letter.Value, Headers: letter.Headers}}
	deliver(t, k, []*transform.Event{again})
	if a := c.claimed(t, s, "a"); !slices.Equal(a, []string{"enc", "enc"}) || len(s.values) != 2 {
		t.Errorf("records %v, %d values", a, len(s.values))
	}
}

// again are events of the records of published ones, as of dead letters, of parked events, or of a
// replayed topic. The last one's value is gone.
func again(s *shelf, published []*transform.Event) (evs []*transform.Event) {
	for _, ev := range published {
		r := &ev.Record
		evs = append(evs, &transform.Event{ID: ev.ID, Record: kgo.Record{Topic: r.Topic, Partition: transform.PartitionByKey, Key: r.Key, Value: r.Value, Headers: slices.Clone(r.Headers)}})
	}
	last, _ := transform.ReferenceOf(&evs[len(evs)-1].Record)
	delete(s.values, last.Place)
	return evs
}

// The record of an earlier publication comes with its reference. The value's time begins anew,
// or consumers would have less time than for other records; a value that is gone makes a bad event.
func TestDeliverRenewsValues(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "a"))
	s, news := new(shelf), &valueNews{}
	k, _ := newKafka(t, c.config(), WithValues(s), WithObserver(news))
	evs := events("a", 5)
	for _, i := range []int{0, 2, 3, 4} {
		large(evs[i])
	}
	deliver(t, k, evs)
	before := c.read(t, "a", 1)[0]
	repeated := again(s, evs)
	s.failures, s.err = 4, errShelf // all of the first attempt
	var refused rejects
	must.OK(t, k.Deliver(deadline(t), repeated, refused.reject))
	if want := (rejects{{"id-4", transform.ReasonClaimGone}}); !slices.Equal(refused, want) || len(s.renewed) != 3 || s.puts != 4 {
		t.Errorf("refused %v, renewed %v, %d values written", refused, s.renewed, s.puts)
	}
	if len(news.reasons) < 2 || !errors.Is(news.reasons[0], errShelf) || news.reasons[len(news.reasons)-1] != nil {
		t.Errorf("the observer is told %v", news.reasons)
	}
	after := c.read(t, "a", 1)[0]
	if len(after) != 9 {
		t.Fatalf("%d records", len(after))
	}
	for i, r := range after[5:] {
		if fmt.Sprint(r.Headers) != fmt.Sprint(before[i].Headers) || string(r.Value) != string(before[i].Value) {
			t.Errorf("record %d has another reference: %v, before %v", i, r.Headers, before[i].Headers)
		}
	}
}

// Likewise with exactly once, outside of the transaction.
func TestTransactRenewsValues(t *testing.T) {
	c, _ := startTransactions(t, 1)
	s := new(shelf)
	x := must.Get(NewTransactions(c.config(), "tx", WithValues(s)))(t)
	t.Cleanup(x.Close)
	must.OK(t, x.Claim(deadline(t)))
	evs := events("t", 3)
	large(evs[0])
	large(evs[2])
	send := func(evs []*transform.Event) []Refusal {
		t.Helper()
		entries := entriesOf(evs)
		must.OK(t, x.Await(deadline(t), entries, func() error { t.Error("no transaction is open"); return nil }))
		return must.Get(x.Transact(deadline(t), entries, mark("one")))(t)
	}
	if refused := send(evs); len(refused) > 0 {
		t.Fatalf("refused %v", refused)
	}
	repeated := again(s, evs)
	refused := send(repeated)
	if len(refused) != 1 || refused[0].Index != 2 || refused[0].Bad.Reason != transform.ReasonClaimGone || len(s.renewed) != 1 {
		t.Fatalf("refused %v, renewed %v", refused, s.renewed)
	}
	if refused = send(repeated[:2]); len(refused) > 0 || len(s.renewed) != 1 {
		t.Errorf("refused %v, renewed %v", refused, s.renewed)
	}
}

// With exactly once, no transaction is open while an event waits for the store; an abort leaves a
// value without a record, and no record without a value.
func TestTransactKeepsLargeValues(t *testing.T) {
	c, _ := startTransactions(t, 1)
	s, news := &shelf{failures: 2, err: errShelf}, &valueNews{}
	x := must.Get(NewTransactions(c.config(), "tx", WithDeadLetterTopic("dead"), WithValues(s), WithObserver(news)))(t)
	t.Cleanup(x.Close)
	must.OK(t, x.Claim(deadline(t)))
	evs := events("t", 4)
	large(evs[1])
	large(evs[3])
	entries := entriesOf(evs)
	entries[3].Bad = &transform.BadEvent{Reason: transform.ReasonInvalidJSON, Err: errors.New("as asked")}
	must.OK(t, x.Await(deadline(t), entries, func() error { t.Error("no transaction is open"); return nil }))
	if len(news.reasons) < 2 || news.reasons[len(news.reasons)-1] != nil || len(s.values) != 2 {
		t.Errorf("the observer is told %v; %d values", news.reasons, len(s.values))
	}
	if refused := must.Get(x.Transact(deadline(t), entries, mark("one")))(t); len(refused) > 0 {
		t.Fatalf("refused %v", refused)
	}
	c.wantCommitted(t, "t", "0", "", "2")
	c.wantCommitted(t, "dead", "")
	if len(s.values) != 2 {
		t.Errorf("%d values", len(s.values))
	}
}

// Parked events may be larger than the topic's limit, too.
func TestQuarantineKeepsLargeValues(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "parked"))
	s := new(shelf)
	k, _ := newKafka(t, c.config(), WithValues(s), WithEncoder(&upper{}), WithQuarantine("parked", func(*transform.Event) bool { return false }))
	ev := event("parked", "k", 0, 1)
	ev.Record.Value = []byte(strings.Repeat("1", 3<<20))
	deliver(t, k, []*transform.Event{ev})
	if got := c.claimed(t, s, "parked"); !slices.Equal(got, []string{"111"}) {
		t.Errorf("the topic has %v", got)
	}
}
