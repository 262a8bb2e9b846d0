package consumer_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	r := &kgo.Record{
		Topic: "orders", Partition: 3, Offset: 42, Key: []byte("key"),
		Value: []byte(`{"a/b": {"~": ["x", 12345678901234567890, null]}, "": "empty", "n": 1.50}`),
		Headers: []kgo.RecordHeader{
			{Key: "id", Value: []byte("first")}, {Key: "other", Value: nil}, {Key: "id", Value: []byte("last")},
		},
	}
	for name, test := range map[string]struct {
		key  func(*kgo.Record) (string, error)
		want string // "" for an error
	}{
		"header":                  {consumer.Header("id"), "last"},
		"no header":               {consumer.Header("ID"), ""},
		"position":                {consumer.Position, "orders/3/42"},
		"pointer, escaped":        {consumer.JSONPointer("/a~1b/~0/0"), "x"},
		"pointer, large number":   {consumer.JSONPointer("/a~1b/~0/1"), "12345678901234567890"},
		"pointer, number's form":  {consumer.JSONPointer("/n"), "1.50"},
		"pointer, empty name":     {consumer.JSONPointer("/"), "empty"},
		"pointer to null":         {consumer.JSONPointer("/a~1b/~0/2"), ""},
		"pointer to nothing":      {consumer.JSONPointer("/x/y"), ""},
		"pointer past the end":    {consumer.JSONPointer("/a~1b/~0/3"), ""},
		"pointer, index with 0":   {consumer.JSONPointer("/a~1b/~0/00"), ""},
		"pointer to an object":    {consumer.JSONPointer(""), ""},
		"pointer without a slash": {consumer.JSONPointer("n"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.key(r)
			if got != test.want || (err == nil) != (test.want != "") {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
			if err != nil && !errors.Is(err, storage.ErrBadKey) {
				t.Errorf("the error %v is not ErrBadKey", err)
			}
		})
	}
	if _, err := consumer.JSONPointer("/id")(&kgo.Record{Value: []byte("not JSON")}); !errors.Is(err, storage.ErrBadKey) {
		t.Errorf("a value that is not JSON gives %v", err)
	}
}

// TestWhatCannotRunIsBuried: never run, never dropped.
func TestWhatCannotRunIsBuried(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		runner idempotency.Runner
		key    func(*kgo.Record) (string, error)
		reason error
	}{
		"no id":             {newLedger(), consumer.Header("missing"), storage.ErrBadKey},
		"empty id":          {newLedger(), func(*kgo.Record) (string, error) { return "", nil }, storage.ErrBadKey},
		"endless id":        {newLedger(), func(*kgo.Record) (string, error) { return strings.Repeat("x", 5000), nil }, storage.ErrBadKey},
		"extractor's error": {newLedger(), func(*kgo.Record) (string, error) { return "", errDown }, errDown},
	} {
		t.Run(name, func(t *testing.T) {
			r := record(0, "k", "id")
			var buried []idempotency.DeadLetter
			letterErr := errDown
			once := consumer.Once{Scope: "s", ID: test.key, Runner: burying{test.runner, func(ctx context.Context, letter idempotency.DeadLetter) error {
				if consumer.RecordFrom(ctx) != r {
					t.Error("the context holds another record")
				}
				buried = append(buried, letter)
				return letterErr
			}}}
			process, err := once.Wrap(func(context.Context, *kgo.Record) error { t.Error("the handler ran"); return nil })
			if err != nil {
				t.Fatal(err)
			}
			if result, err := process(t.Context(), r); result.Done() || !errors.Is(err, errDown) || !errors.Is(err, test.reason) {
				t.Errorf("with a dead letter that is not written: %v, %v", result.Disposition, err)
			}
			letterErr = nil
			if result, err := process(t.Context(), r); result.Disposition != idempotency.DeadLettered || err != nil {
				t.Errorf("with one that is: %v, %v", result.Disposition, err)
			}
			if len(buried) != 2 || !errors.Is(buried[1].Reason, test.reason) {
				t.Errorf("the dead letters are %+v", buried)
			}
			once.Runner = test.runner
			process, err = once.Wrap(func(context.Context, *kgo.Record) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			if result, err := process(t.Context(), r); result.Done() || !errors.Is(err, test.reason) {
				t.Errorf("without dead letters: %v, %v", result.Disposition, err)
			}
		})
	}
}

// TestAContradictionIsBuriedOnce: each call tries a single dead letter, also
// without success.
func TestAContradictionIsBuriedOnce(t *testing.T) {
	t.Parallel()
	var buried []idempotency.DeadLetter
	letterErr := errDown
	once := consumer.Once{Scope: "s", Runner: processor(t, func(o *idempotency.Options) {
		o.DeadLetter = func(_ context.Context, letter idempotency.DeadLetter) error {
			buried = append(buried, letter)
			return letterErr
		}
	})}
	handled := 0
	process, err := once.Wrap(func(context.Context, *kgo.Record) error { handled++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	if result, err := process(t.Context(), record(0, "k", "id")); result.Disposition != idempotency.Handled {
		t.Fatalf("%+v, %v", result, err)
	}
	another := record(0, "k", "id")
	another.Value = []byte("another payload")
	if result, err := process(t.Context(), another); result.Done() || len(buried) != 1 || !errors.Is(err, errDown) || !errors.Is(err, storage.ErrMismatch) {
		t.Errorf("with a dead letter that is not written: %v, %v, tried %d times", result.Disposition, err, len(buried))
	}
	letterErr = nil
	if result, err := process(t.Context(), another); result.Disposition != idempotency.DeadLettered || err != nil || len(buried) != 2 {
		t.Errorf("with one that is: %v, %v, tried %d times", result.Disposition, err, len(buried))
	}
	if handled != 1 || !errors.Is(buried[0].Reason, storage.ErrMismatch) {
		t.Errorf("handled %d times, the dead letters are %+v", handled, buried)
	}
}

// TestHandlersOwnErrorIsNoMismatch: a handler may return the mismatch of
// another Processor within.
func TestHandlersOwnErrorIsNoMismatch(t *testing.T) {
	t.Parallel()
	once := consumer.Once{Scope: "s", Runner: burying{newLedger(), func(context.Context, idempotency.DeadLetter) error {
		t.Error("the record was buried")
		return nil
	}}}
	process, err := once.Wrap(func(context.Context, *kgo.Record) error { return storage.ErrMismatch })
	if err != nil {
		t.Fatal(err)
	}
	result, err := process(t.Context(), record(0, "k", "id"))
	if result.Disposition != idempotency.Retry || !errors.Is(err, storage.ErrMismatch) {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestWhatIsMissing(t *testing.T) {
	t.Parallel()
	nop := func(context.Context, *kgo.Record) error { return nil }
	for name, test := range map[string]struct {
		once    consumer.Once
		handler consumer.Handler
	}{
		"no handler": {consumer.Once{Scope: "s", Runner: newLedger()}, nil},
		"no runner":  {consumer.Once{Scope: "s"}, nop},
		"no scope":   {consumer.Once{Runner: newLedger()}, nop},
	} {
		if _, err := test.once.Wrap(test.handler); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestBadConfigurations(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*consumer.Config){
		"Brokers":            func(c *consumer.Config) { c.Brokers = nil },
		"Group":              func(c *consumer.Config) { c.Group = "" },
		"Topics":             func(c *consumer.Config) { c.Topics = nil },
		"Concurrency":        func(c *consumer.Config) { c.Concurrency = -1 },
		"MaxBufferedRecords": func(c *consumer.Config) { c.MaxBufferedRecords = -1 },
		"MaxBufferedBytes":   func(c *consumer.Config) { c.MaxBufferedBytes = -1 },
		"CommitInterval":     func(c *consumer.Config) { c.CommitInterval = -1 },
		"RevokeTimeout":      func(c *consumer.Config) { c.RevokeTimeout = -1 },
		"DrainTimeout":       func(c *consumer.Config) { c.DrainTimeout = -1 },
		"BackoffFirst":       func(c *consumer.Config) { c.BackoffFirst = -1 },
		"BackoffLongest":     func(c *consumer.Config) { c.BackoffLongest = 1 },
		"Middleware":         func(c *consumer.Config) { c.Middleware = []func(consumer.Process) consumer.Process{nil} },
		"runner":             func(c *consumer.Config) { c.Once.Runner = nil },
		"client options":     func(c *consumer.Config) { c.Options = []kgo.Opt{kgo.FetchMaxWait(-1)} },
	} {
		cfg := consumer.Config{Brokers: []string{"localhost:1"}, Group: "g", Topics: []string{"t"},
			Once:    consumer.Once{Scope: "s", Runner: newLedger()},
			Handler: func(context.Context, *kgo.Record) error { return nil }}
		if _, err := consumer.New(cfg); err != nil {
			t.Fatal(err)
		}
		change(&cfg)
		if _, err := consumer.New(cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: New returned %v", name, err)
		}
	}
}

// A trial beside an existing solution: each record is handled, whatever the
// library's decision.
func TestAShadowHandlesEachRecord(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 1, nil)
	produce(t, b, record(0, "k", "1"), record(0, "k", "1"), &kgo.Record{Topic: "orders", Value: []byte("no id")}, record(0, "k", "2"))
	var would []string
	p := processor(t, func(o *idempotency.Options) {
		o.Shadow = true
		o.Observer.Shadow = func(_ idempotency.Message, r idempotency.Result, _ error) {
			would = append(would, r.Disposition.String())
		}
	})
	var handled atomic.Int64
	m := start(t, config(b, p, func(context.Context, *kgo.Record) error { handled.Add(1); return nil }))
	eventuallyCommitted(t, kadm.NewClient(b.Client(t)), 1, 4)
	m.stop(t)
	if got := strings.Join(would, " "); handled.Load() != 4 || got != "handled skipped dead_lettered handled" {
		t.Errorf("%d of 4 records are handled; it would have %s", handled.Load(), got)
	}
}
