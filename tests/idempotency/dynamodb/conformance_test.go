package dynamodb_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/cdc-outbox/cdc-outbox/idempotency/dynamodb"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storetest"
	"github.com/cdc-outbox/cdc-outbox/internal/base/hook"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/dynamotest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// subject is judged to the microsecond: answers carry fake time exactly.
func (f *fixture) subject() storetest.Subject {
	s := f.store(0)
	return storetest.Subject{
		Store: s, Operator: s, Advance: f.clock.advance,
		Skewed:         func(offset time.Duration) storage.Store { return f.store(offset) },
		MaxResultBytes: maxResultBytes,
	}
}

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Subject { return newFixture(t).subject() })
}

// Emulators, such as dynalite 4.0 and DynamoDB Local 2.1, do not return the
// present item when they refuse a write.
func TestContractWhereARefusalIsSilent(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		f := newFixture(t)
		f.client = dynamotest.Shared(t).Client(t, f.clock.stamp(exactDate), silentRefusals())
		return f.subject()
	})
}

// silentRefusals takes the wish for the item out of requests.
func silentRefusals() func(*sdk.Options) {
	asked := []byte(`"ReturnValuesOnConditionCheckFailure":"ALL_OLD"`)
	return through(func(r *http.Request, next exchange) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		silent := r.Clone(r.Context())
		body = bytes.Replace(body, asked, []byte(`"ReturnValuesOnConditionCheckFailure":"NONE"`), 1)
		silent.Body, silent.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		return next(silent)
	})
}

func TestHistoriesInFakeTime(t *testing.T) {
	storetest.Histories(t, newFixture(t).subject(), storetest.Options{Steps: 3000, Skew: 5 * time.Hour})
}

// liveTolerance is more than the uncertainty of the server's clock.
const liveTolerance = 50 * time.Millisecond

// preciseDate makes the server's answers carry the time with the fraction, so
// leases may be short. Now and then a request takes longer to the server than
// the tolerance.
func preciseDate() func(*sdk.Options) {
	return through(func(r *http.Request, next exchange) (*http.Response, error) {
		if rand.IntN(20) == 0 {
			select {
			case <-time.After(rand.N(4 * liveTolerance)):
			case <-r.Context().Done():
			}
		}
		resp, err := next(r)
		if err == nil {
			resp.Header.Set("Date", time.Now().UTC().Format(exactDate))
		}
		return resp, err
	})
}

// learnTime asks until the server's clock is known well within the tolerance: a
// single prompt answer is enough.
func learnTime(t *testing.T, s *dynamodb.Store) {
	t.Helper()
	const patience = 3 * time.Minute
	deadline := time.Now().Add(patience)
	for {
		if _, err := s.Inspect(t.Context(), key("time")); err != nil {
			t.Fatal(err)
		}
		if unknown, ok := hook.DynamoDBUnknown(s); ok && unknown < liveTolerance/5 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no answer of the server came fast enough within %s", patience)
		}
	}
}

func TestE2EHistoriesInRealTime(t *testing.T) {
	server := dynamotest.Shared(t)
	client, table := server.Client(t, preciseDate()), server.Table(t)
	skewed := func(offset time.Duration) *dynamodb.Store {
		s := exactly(must.Get(dynamodb.New(client, dynamodb.Options{
			Table: table, Margin: -1, Now: func() time.Time { return time.Now().Add(offset) },
		}))(t)) // the Date is the local clock's
		learnTime(t, s)
		return s
	}
	s := skewed(0)
	storetest.Histories(t, storetest.Subject{
		Store: s, Operator: s, Tolerance: liveTolerance, ReadsClockFirst: true,
		Skewed: func(offset time.Duration) storage.Store { return skewed(offset) },
	}, storetest.Options{Skew: 5 * time.Hour, Lease: 300 * time.Millisecond})
}
