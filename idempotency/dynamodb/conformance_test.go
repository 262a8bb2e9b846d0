package dynamodb_test

import (
	"net/http"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/dynamodb"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storetest"
	"github.com/cdc-outbox/cdc-outbox/internal/dynamotest"
)

// subject is judged to the microsecond: in fake time answers carry it exactly.
func (f *fixture) subject() storetest.Subject {
	s := f.store(0)
	return storetest.Subject{
		Store: s, Operator: s, Advance: f.clock.advance,
		Skewed:         func(offset time.Duration) idempotency.Store { return f.store(offset) },
		MaxResultBytes: dynamodb.MaxResultBytes,
	}
}

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Subject { return newFixture(t).subject() })
}

func TestHistoriesInFakeTime(t *testing.T) {
	storetest.Histories(t, newFixture(t).subject(), storetest.Options{Steps: 3000, Skew: 5 * time.Hour})
}

// liveTolerance is more than a round trip to DynamoDB Local: what is not known
// of its clock.
const liveTolerance = 50 * time.Millisecond

// preciseDate makes the server's answers carry the time with its fraction, so
// that leases may be short.
func preciseDate() func(*sdk.Options) {
	return through(func(r *http.Request, next exchange) (*http.Response, error) {
		resp, err := next(r)
		if err == nil {
			resp.Header.Set("Date", time.Now().UTC().Format(exactDate))
		}
		return resp, err
	})
}

func TestHistoriesInRealTime(t *testing.T) {
	server := dynamotest.Shared(t)
	client, table := server.Client(t, preciseDate()), server.Table(t)
	skewed := func(offset time.Duration) *dynamodb.Store {
		return dynamodb.New(client, table, dynamodb.Options{
			Margin: -1, Now: func() time.Time { return time.Now().Add(offset) },
		}).ExactDate()
	}
	s := skewed(0)
	storetest.Histories(t, storetest.Subject{
		Store: s, Operator: s, Tolerance: liveTolerance,
		Skewed: func(offset time.Duration) idempotency.Store { return skewed(offset) },
	}, storetest.Options{Skew: 5 * time.Hour, Lease: 300 * time.Millisecond})
}
