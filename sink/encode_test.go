package sink

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// upper is an Encoder to upper case, with a schema for each topic. A value "bad" never has
// the form; a question fails as often as failures says.
type upper struct {
	mu       sync.Mutex
	known    map[string]bool
	failures int
	asked    int
}

func (u *upper) Encode(ev *transform.Event) (known bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case !u.known[ev.Record.Topic]:
		return false, nil
	case string(ev.Record.Value) == "bad":
		return true, &transform.BadEvent{Reason: transform.ReasonSchemaMismatch, Err: errors.New("as asked")}
	}
	ev.Encode([]byte(strings.ToUpper(string(ev.Record.Key))), []byte("enc-"+string(ev.Record.Value)))
	return true, nil
}

var errRegistry = errors.New("the registry is down")

func (u *upper) Learn(_ context.Context, ev *transform.Event) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked++
	if u.failures > 0 {
		u.failures--
		return errRegistry
	}
	if u.known == nil {
		u.known = map[string]bool{}
	}
	u.known[ev.Record.Topic] = true
	return nil
}

// schemaNews notes the news of an observer.
type schemaNews struct {
	unobserved
	reasons []error
}

func (s *schemaNews) SchemaWaiting(reason error) { s.reasons = append(s.reasons, reason) }

// The registry is down at first: the event waits, visibly, and nothing behind passes it.
func TestDeliverEncodes(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "a", "b", "dead"))
	u, news := &upper{failures: 3}, &schemaNews{}
	k, _ := newKafka(t, c.config(), WithEncoder(u), WithObserver(news), WithDeadLetterTopic("dead"))
	evs := slices.Concat(events("a", 5), events("b", 5))
	evs[3].Record.Value = []byte("bad")
	var refused rejects
	must.OK(t, k.Deliver(deadline(t), evs, func(ctx context.Context, ev *transform.Event, bad *transform.BadEvent) error {
		if err := refused.reject(ctx, ev, bad); err != nil {
			return err
		}
		return k.DeadLetter(ctx, ev, bad)
	}))
	for topic, want := range map[string]string{"a": "enc-0 enc-1 enc-2 enc-4", "b": "enc-0 enc-1 enc-2 enc-3 enc-4", "dead": "bad"} {
		if got := strings.Join(c.values(t, topic, 1)[0], " "); got != want {
			t.Errorf("topic %s has %s, want %s", topic, got, want)
		}
	}
	if want := []error{errRegistry, errRegistry, errRegistry, nil}; !slices.Equal(news.reasons, want) || u.asked != 5 {
		t.Errorf("the observer is told %v, after %d questions", news.reasons, u.asked)
	}
	if key, value := evs[0].Plain(); string(value) != "0" || string(evs[0].Record.Key) != strings.ToUpper(string(key)) {
		t.Errorf("plain form %s, %s", key, value)
	}
}

func TestDeliverStopsWhileItWaitsForASchema(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "a"))
	stop := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(deadline(t))
	k, _ := newKafka(t, c.config(), WithEncoder(&upper{failures: 1 << 30}), WithObserver(stopper{stop: func() { cancel(stop) }}))
	if err := k.Deliver(ctx, events("a", 1), noReject(t)); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	if got := c.values(t, "a", 1)[0]; len(got) > 0 {
		t.Errorf("written: %v", got)
	}
}

// stopper calls stop once a delivery waits for a schema.
type stopper struct {
	unobserved
	stop func()
}

func (s stopper) SchemaWaiting(error) { s.stop() }

// With exactly once, no transaction is open while an event waits for its schema.
func TestTransactEncodes(t *testing.T) {
	c, _ := startTransactions(t, 1)
	u, news := &upper{failures: 2}, &schemaNews{}
	x := must.Get(NewTransactions(c.config(), "tx", WithDeadLetterTopic("dead"), WithEncoder(u), WithObserver(news)))(t)
	t.Cleanup(x.Close)
	must.OK(t, x.Claim(deadline(t)))
	evs := events("t", 3)
	evs[1].Record.Value = []byte("bad")
	entries := entriesOf(evs)
	must.OK(t, x.Await(deadline(t), entries, func() error { t.Error("no transaction is open"); return nil }))
	if len(news.reasons) != 3 {
		t.Errorf("the observer is told %v", news.reasons)
	}
	refused := must.Get(x.Transact(deadline(t), entries, mark("one")))(t)
	if len(refused) != 1 || refused[0].Index != 1 || refused[0].Bad.Reason != transform.ReasonSchemaMismatch {
		t.Fatalf("refused %v", refused)
	}
	entries[1].Bad = refused[0].Bad
	if refused = must.Get(x.Transact(deadline(t), entries, mark("one")))(t); len(refused) > 0 {
		t.Fatalf("refused %v", refused)
	}
	c.wantCommitted(t, "t", "enc-0", "enc-2")
	c.wantCommitted(t, "dead", "bad")
}

// The quarantine keeps events as the rows have them.
func TestQuarantineKeepsPlainEvents(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "parked"))
	k, _ := newKafka(t, c.config(), WithEncoder(&upper{}), WithQuarantine("parked", func(*transform.Event) bool { return false }))
	deliver(t, k, events("parked", 1))
	if got := c.values(t, "parked", 1)[0]; !slices.Equal(got, []string{"0"}) {
		t.Errorf("the topic has %v", got)
	}
}
