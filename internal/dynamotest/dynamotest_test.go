package dynamotest_test

import (
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/cdc-outbox/cdc-outbox/internal/dynamotest"
)

func TestMain(m *testing.M) { dynamotest.Main(m) }

func TestTablesAreEachOnesOwn(t *testing.T) {
	s := dynamotest.Shared(t)
	a, b := s.Table(t), s.Table(t)
	if a == b {
		t.Fatalf("both are called %s", a)
	}
	client, err := dynamotest.SharedClient()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*sdk.Client{client, s.Client(t)} {
		for _, name := range []string{a, b} {
			if _, err := c.DescribeTable(t.Context(), &sdk.DescribeTableInput{TableName: &name}); err != nil {
				t.Error(err)
			}
		}
	}
}
