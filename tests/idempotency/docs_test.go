package idempotency_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/idempotency/deadletter"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/docblocks"
)

const document = "../../docs/idempotency-library.md"

// TestDocumentationIsWhatRuns finds each block of code of the documentation in
// an example that runs.
func TestDocumentationIsWhatRuns(t *testing.T) {
	docblocks.Check(t, document, 6, docblocks.Sources{"go": docblocks.Read(t,
		"redis/example_consumer_test.go", "postgres/example_consumer_test.go", "../../idempotency/memory/layered_test.go")})
}

func TestAnotherClientIsWhatRuns(t *testing.T) {
	docblocks.Check(t, "../../docs/how-to/another-client.md", 1, docblocks.Sources{"go": docblocks.Read(t, "../../examples/clients/kafkago/consume.go")})
}

func TestTheMigrationIsWhatRuns(t *testing.T) {
	docblocks.Check(t, "../../docs/idempotency-migration.md", 2, docblocks.Sources{"go": docblocks.Read(t,
		"redis/example_consumer_test.go", "consumer/shadow_test.go")})
}

// TestLinesOfTheProgramsAreDocumented counts the lines of the first programs.
func TestLinesOfTheProgramsAreDocumented(t *testing.T) {
	lines := func(program string) int {
		return strings.Count(docblocks.Read(t, "../../examples/guide/"+program+"/main.go"), "\n")
	}
	want := fmt.Sprintf("The first three have %d, %d and %d lines;", lines("consumer"), lines("transactional"), lines("producer"))
	if !strings.Contains(docblocks.Read(t, document), want) {
		t.Errorf("%s does not say: %s", document, want)
	}
}

func TestDefaultsAreDocumented(t *testing.T) {
	const code = "../../idempotency"
	docblocks.Defaults(t, document, map[string]string{
		"idempotency.Options": code, "consumer.Config": code + "/consumer",
		"postgres.Options": code + "/postgres", "redis.Options": code + "/redis", "dynamodb.Options": code + "/dynamodb",
		"memory.Options": code + "/memory", "memory.WindowOptions": code + "/memory",
	})
}

// TestDeadLettersAreDocumented finds a dead letter's reasons and headers in the
// runbook.
func TestDeadLettersAreDocumented(t *testing.T) {
	runbook := docblocks.Read(t, "../../docs/runbook/IdempotencyDeadLetters.md")
	for _, reason := range []string{deadletter.ReasonFailed, deadletter.ReasonMismatch, deadletter.ReasonBadKey} {
		if !strings.Contains(runbook, "\n| `"+reason+"` | ") {
			t.Errorf("reason %s is not in the table", reason)
		}
	}
	for _, header := range []string{
		deadletter.HeaderReason, deadletter.HeaderError, deadletter.HeaderScope, deadletter.HeaderAttempts,
		deadletter.HeaderTopic, deadletter.HeaderPartition, deadletter.HeaderOffset, deadletter.HeaderTimestamp,
	} {
		if short := "`-" + strings.TrimPrefix(header, "cdc-dlq-") + "`"; !strings.Contains(runbook, "`"+header+"`") && !strings.Contains(runbook, short) {
			t.Errorf("header %s is not mentioned", header)
		}
	}
}
