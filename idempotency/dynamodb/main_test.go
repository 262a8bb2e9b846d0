package dynamodb_test

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/dynamotest"
)

func TestMain(m *testing.M) { dynamotest.Main(m) }
