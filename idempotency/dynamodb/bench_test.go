package dynamodb_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/dynamodb"
	"github.com/cdc-outbox/cdc-outbox/internal/dynamotest"
)

// bare is what the least home-made answer costs: one conditional PutItem.
func bare(b *testing.B, client *sdk.Client, table, id string) {
	b.Helper()
	_, err := client.PutItem(b.Context(), &sdk.PutItemInput{
		TableName:           &table,
		Item:                map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: id}},
		ConditionExpression: aws.String("attribute_not_exists(pk)"),
	})
	if err != nil {
		b.Fatal(err)
	}
}

// Each call of the store alternates with one of the bare client.
func Benchmark(b *testing.B) {
	server := dynamotest.Shared(b)
	client := server.Client(b)
	result := []byte("parcel 7")
	for _, bench := range []struct {
		name string
		// prepare readies key i; measured is what is timed.
		prepare, measured func(b *testing.B, s *dynamodb.Store, k idempotency.Key) idempotency.Lease
	}{
		{"claim", nil, benchClaim},
		{"duplicate", func(b *testing.B, s *dynamodb.Store, k idempotency.Key) idempotency.Lease {
			lease := benchClaim(b, s, k)
			if err := s.Complete(b.Context(), lease, result, time.Hour); err != nil {
				b.Fatal(err)
			}
			return lease
		}, func(b *testing.B, s *dynamodb.Store, k idempotency.Key) idempotency.Lease {
			c, err := s.Claim(b.Context(), k, request("b"))
			if err != nil || c.Outcome != idempotency.Duplicate {
				b.Fatal(c.Outcome, err)
			}
			return c.Lease
		}},
		{"message", nil, func(b *testing.B, s *dynamodb.Store, k idempotency.Key) idempotency.Lease {
			lease := benchClaim(b, s, k)
			if err := s.Complete(b.Context(), lease, result, time.Hour); err != nil {
				b.Fatal(err)
			}
			return lease
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			table := server.Table(b)
			s := dynamodb.New(client, table, dynamodb.Options{})
			var ours, theirs time.Duration
			for i := 0; b.Loop(); i++ {
				k := key(strconv.Itoa(i))
				if bench.prepare != nil {
					bench.prepare(b, s, k)
				}
				begun := time.Now()
				bare(b, client, table, "bare-"+k.ID)
				theirs += time.Since(begun)
				begun = time.Now()
				bench.measured(b, s, k)
				ours += time.Since(begun)
			}
			b.ReportMetric(float64(ours)/float64(theirs), "×bare")
			b.ReportMetric(float64(ours.Microseconds())/float64(b.N), "µs/call")
			b.ReportMetric(float64((ours-theirs).Microseconds())/float64(b.N), "µs-added/call")
			b.ReportMetric(float64(b.N)/ours.Seconds(), "calls/s")
		})
	}
}

func benchClaim(b *testing.B, s *dynamodb.Store, k idempotency.Key) idempotency.Lease {
	b.Helper()
	return claimed(b, s, k, "a").Lease
}
