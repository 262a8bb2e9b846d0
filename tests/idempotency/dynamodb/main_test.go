package dynamodb_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/dynamoserver"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/dynamotest"
)

// Examples cannot skip themselves, as tests do where DynamoDB Local is not to be
// had.
func TestMain(m *testing.M) {
	flag.Parse()
	if _, err := dynamotest.SharedClient(); errors.Is(err, dynamoserver.ErrNotToBeHad) {
		fmt.Fprintln(os.Stderr, "examples are skipped:", err)
		if err := flag.Set("test.skip", "^Example"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	dynamotest.Main(m)
}
