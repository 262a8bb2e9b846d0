package dynamodb_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/cdc-outbox/cdc-outbox/idempotency/dynamodb"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/base/hook"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/dynamotest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// exchange is an HTTP client's request and answer.
type exchange func(*http.Request) (*http.Response, error)

// Do implements the SDK's HTTPClient.
func (e exchange) Do(r *http.Request) (*http.Response, error) { return e(r) }

// through puts a function between the SDK and the HTTP client.
func through(wrap func(r *http.Request, next exchange) (*http.Response, error)) func(*sdk.Options) {
	return func(o *sdk.Options) {
		inner := o.HTTPClient
		o.HTTPClient = exchange(func(r *http.Request) (*http.Response, error) { return wrap(r, inner.Do) })
	}
}

// ticker is a clock moving only when told, and shown in the server's answers.
type ticker struct{ nanos atomic.Int64 }

func newTicker() *ticker {
	c := &ticker{}
	c.nanos.Store(time.Unix(1_800_000_000, 0).UnixNano())
	return c
}

func (c *ticker) now() time.Time { return time.Unix(0, c.nanos.Load()) }

func (c *ticker) advance(d time.Duration) { c.nanos.Add(int64(d)) }

// exactDate is an HTTP date with a fraction, legible to the SDK, too.
const exactDate = "Mon, 02 Jan 2006 15:04:05.000000000 GMT"

// stamp makes the server's answers show the clock, in whole seconds as real ones
// do, or exactly.
func (c *ticker) stamp(layout string) func(*sdk.Options) {
	return through(func(r *http.Request, next exchange) (*http.Response, error) {
		resp, err := next(r)
		if err == nil {
			resp.Header.Set("Date", c.now().UTC().Format(layout))
		}
		return resp, err
	})
}

// fixture is a table and a clock moving only when told.
type fixture struct {
	t      testing.TB
	table  string
	client *sdk.Client
	clock  *ticker
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	server := dynamotest.Shared(t)
	f := &fixture{t: t, table: server.Table(t), clock: newTicker()}
	f.client = server.Client(t, f.clock.stamp(exactDate))
	return f
}

// store returns a client of the table with exact knowledge of the server's clock,
// and a local clock off by offset.
func (f *fixture) store(offset time.Duration) *dynamodb.Store {
	return exactly(must.Get(dynamodb.New(f.client, dynamodb.Options{
		Table: f.table, Margin: -1,
		Now: func() time.Time { return f.clock.now().Add(offset) },
	}))(f.t))
}

// exactly makes the store take the server's Date for exact.
func exactly(s *dynamodb.Store) *dynamodb.Store {
	hook.DynamoDBExact(s)
	return s
}

// maxResultBytes bounds a result.
const maxResultBytes = 397 << 10

func key(id string) storage.Key { return storage.Key{Scope: "shipping", ID: id} }

func request(owner string) storage.ClaimRequest {
	return storage.ClaimRequest{Owner: owner, Lease: 30 * time.Second, Retention: time.Hour}
}

// claimed claims a free key.
func claimed(t testing.TB, s storage.Store, k storage.Key, owner string) storage.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), k, request(owner))
	if err != nil || c.Outcome != storage.Claimed {
		t.Fatalf("claim by %s: %s, %v; want claimed", owner, c.Outcome, err)
	}
	return c
}
