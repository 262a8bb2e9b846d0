package dynamodb_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/cdc-outbox/cdc-outbox/idempotency/dynamodb"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/dynamotest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
)

// never keeps the SDK from repeating a request.
func never(o *sdk.Options) { o.Retryer = aws.NopRetryer{} }

// step is a method with fixed arguments; do returns the answer.
type step struct {
	name string
	do   func(s *dynamodb.Store) (any, error)
	// writes is the number of the step's writes: a claim of a known key is refused
	// first.
	writes int64
	// after is the state after the step.
	after storage.State
}

// lostAnswers are steps, each following the step before.
func lostAnswers(t *testing.T, k storage.Key) []step {
	var lease storage.Lease
	claim := func(owner string) func(*dynamodb.Store) (any, error) {
		return func(s *dynamodb.Store) (any, error) {
			c, err := s.Claim(t.Context(), k, request(owner))
			if err == nil {
				lease = c.Lease
			}
			return c, err
		}
	}
	fail := func(f storage.Failure) func(*dynamodb.Store) (any, error) {
		f.Retention = time.Hour
		return func(s *dynamodb.Store) (any, error) { return nil, s.Fail(t.Context(), lease, f) }
	}
	return []step{
		{"claim", claim("a"), 1, storage.Processing},
		{"extend", func(s *dynamodb.Store) (any, error) {
			return nil, s.Extend(t.Context(), lease, time.Minute)
		}, 1, storage.Processing},
		{"fail", fail(storage.Failure{Reason: "r"}), 1, storage.Retryable},
		{"claim again", claim("b"), 2, storage.Processing},
		{"fail unrun", fail(storage.Failure{Unrun: true}), 1, storage.Retryable},
		{"claim once more", claim("c"), 2, storage.Processing},
		{"fail for good", fail(storage.Failure{Terminal: true}), 1, storage.Failed},
		{"release", func(s *dynamodb.Store) (any, error) {
			_, err := s.Release(t.Context(), k)
			return nil, err
		}, 1, storage.Retryable},
		{"last claim", claim("d"), 2, storage.Processing},
		{"complete", func(s *dynamodb.Store) (any, error) {
			return nil, s.Complete(t.Context(), lease, []byte("result"), time.Hour)
		}, 1, storage.Completed},
	}
}

// attempts are the steps' attempts, none counted twice.
var attempts = map[string]int{
	"claim": 1, "extend": 1, "fail": 1, "claim again": 2, "fail unrun": 1, "claim once more": 2, "fail for good": 2,
	"release": 0, "last claim": 1, "complete": 1,
}

func check(t *testing.T, s *dynamodb.Store, k storage.Key, done step) {
	t.Helper()
	r, err := s.Inspect(t.Context(), k)
	if err != nil || r.State != done.after || r.Attempts != attempts[done.name] {
		t.Fatalf("%s: the key is %s after %d attempts, %v; want %s after %d", done.name, r.State, r.Attempts, err, done.after, attempts[done.name])
	}
}

// The write is carried out, the answer is lost on the way, the caller repeats
// the call.
func TestAnswersLostOnTheWay(t *testing.T) {
	server := dynamotest.Shared(t)
	table := server.Table(t)
	p, err := proxy.Listen("127.0.0.1:0", server.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	var left atomic.Int64 // writes until a lost answer
	client := (&dynamotest.Server{Address: p.Addr()}).Client(t, never, through(func(r *http.Request, next exchange) (*http.Response, error) {
		if writes(r) && left.Add(-1) == 0 {
			p.Set(proxy.Down, proxy.Fault{Cut: true})
		}
		return next(r)
	}))
	s := must.Get(dynamodb.New(client, dynamodb.Options{Table: table}))(t)
	witness := must.Get(dynamodb.New(server.Client(t), dynamodb.Options{Table: table}))(t)
	k := key("1")
	for _, st := range lostAnswers(t, k) {
		left.Store(st.writes)
		if _, err := st.do(s); err == nil || storage.Answered(err) {
			t.Fatalf("%s without an answer: %v", st.name, err)
		}
		p.Set(proxy.Down, proxy.Fault{})
		check(t, witness, k, st) // the step was carried out
		if _, err := st.do(s); err != nil {
			t.Fatalf("%s repeated: %v", st.name, err)
		}
		check(t, witness, k, st)
	}
}

func writes(r *http.Request) bool {
	target := r.Header.Get("X-Amz-Target")
	return strings.HasSuffix(target, ".PutItem") || strings.HasSuffix(target, ".UpdateItem")
}

// The SDK repeats a request by itself: the second answer is about the SDK's first
// write, not to be taken for somebody else's.
func TestAnswersLostToTheSDK(t *testing.T) {
	server := dynamotest.Shared(t)
	table := server.Table(t)
	var seen atomic.Int64
	client := server.Client(t, quickly, through(func(r *http.Request, next exchange) (*http.Response, error) {
		resp, err := next(r)
		if err == nil && writes(r) && seen.Add(1)%2 == 1 {
			_, err = io.Copy(io.Discard, resp.Body)
			return nil, errors.Join(err, resp.Body.Close(), io.ErrUnexpectedEOF)
		}
		return resp, err
	}))
	s := must.Get(dynamodb.New(client, dynamodb.Options{Table: table}))(t)
	k := key("1")
	for _, st := range lostAnswers(t, k) {
		got, err := st.do(s)
		if err != nil {
			t.Fatalf("%s: %v", st.name, err)
		}
		if c, ok := got.(storage.Claim); ok && c.Outcome != storage.Claimed {
			t.Fatalf("%s: %s", st.name, c.Outcome)
		}
		check(t, s, k, st)
	}
	if seen.Load() == 0 {
		t.Error("no answer was lost")
	}
}

// While throttled the SDK repeats; the last error tells the remedy.
func TestThrottling(t *testing.T) {
	server := dynamotest.Shared(t)
	table := server.Table(t)
	var refusals atomic.Int64
	client := server.Client(t, quickly, through(func(r *http.Request, next exchange) (*http.Response, error) {
		if refusals.Add(-1) >= 0 {
			return refusal(r, "ProvisionedThroughputExceededException"), nil
		}
		return next(r)
	}))
	s := must.Get(dynamodb.New(client, dynamodb.Options{Table: table}))(t)
	refusals.Store(2)
	lease := claimed(t, s, key("1"), "a").Lease
	refusals.Store(1 << 30)
	err := s.Complete(t.Context(), lease, nil, time.Hour)
	if err == nil || storage.Answered(err) || !strings.Contains(err.Error(), "on-demand") {
		t.Errorf("%v; want an error that tells what to do", err)
	}
	refusals.Store(0)
	if err := s.Complete(t.Context(), lease, nil, time.Hour); err != nil {
		t.Error(err)
	}
}

func TestConnectionRefused(t *testing.T) {
	server := dynamotest.Shared(t)
	p, err := proxy.Listen("127.0.0.1:0", server.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	s := must.Get(dynamodb.New((&dynamotest.Server{Address: p.Addr()}).Client(t, never), dynamodb.Options{Table: server.Table(t)}))(t)
	p.Refuse(true)
	if _, err := s.Claim(t.Context(), key("1"), request("a")); err == nil || storage.Answered(err) {
		t.Errorf("%v; want an error that is no answer", err)
	}
	p.Refuse(false)
	claimed(t, s, key("1"), "a")
}
