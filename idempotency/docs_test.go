package idempotency_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/dynamodb"
	"github.com/cdc-outbox/cdc-outbox/idempotency/memory"
	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/internal/docblocks"
)

const document = "../docs/idempotency-library.md"

// TestDocumentationIsWhatRuns finds each block of code of the documentation in
// an example that runs.
func TestDocumentationIsWhatRuns(t *testing.T) {
	docblocks.Check(t, document, 6, docblocks.Sources{"go": docblocks.Read(t,
		"redis/example_consumer_test.go", "postgres/example_consumer_test.go", "memory/layered_test.go")})
}

// TestDefaultsAreDocumented finds each default in the line of its options.
func TestDefaultsAreDocumented(t *testing.T) {
	text := docblocks.Read(t, document)
	for options, defaults := range map[string]map[string]any{
		"idempotency.Options": {
			"Lease": idempotency.DefaultLease, "Retention": idempotency.DefaultRetention, "MaxAttempts": idempotency.DefaultMaxAttempts,
			"FirstRetry": idempotency.DefaultFirstRetry, "LastRetry": idempotency.DefaultLastRetry,
		},
		"postgres.Options": {
			"IdleTimeout": postgres.DefaultIdleTimeout, "MaxResultBytes": postgres.DefaultMaxResultBytes,
		},
		"redis.Options": {
			"Prefix": redis.DefaultPrefix, "MaxResultBytes": redis.DefaultMaxResultBytes, "WaitTimeout": redis.DefaultWaitTimeout,
		},
		"dynamodb.Options":    {"Margin": dynamodb.DefaultMargin},
		"memory.StoreOptions": {"Records": memory.DefaultRecords, "MaxResultBytes": memory.DefaultMaxResultBytes},
		"memory.WindowOptions": {
			"Exact": memory.DefaultExact, "Filtered": memory.DefaultFiltered, "FalsePositives": memory.DefaultFalsePositives,
		},
		"consumer.Config": {
			"Concurrency": consumer.DefaultConcurrency, "MaxBufferedRecords": consumer.DefaultMaxBufferedRecords,
			"MaxBufferedBytes": consumer.DefaultMaxBufferedBytes, "CommitInterval": consumer.DefaultCommitInterval,
			"RevokeTimeout": consumer.DefaultRevokeTimeout, "DrainTimeout": consumer.DefaultDrainTimeout,
			"BackoffFirst": consumer.DefaultBackoffFirst, "BackoffLongest": consumer.DefaultBackoffLongest,
		},
	} {
		_, line, found := strings.Cut(text, "\n| `"+options+"` | ")
		line, _, _ = strings.Cut(line, "\n")
		if !found {
			t.Errorf("%s has no line", options)
		}
		for name, value := range defaults {
			// What follows is the end, or the next one.
			want := fmt.Sprintf("`%s` %v", name, value)
			if _, rest, said := strings.Cut(line, want); !said || strings.IndexAny(rest, ",; ") != 0 {
				t.Errorf("the line of %s does not say %s", options, want)
			}
		}
	}
}

// TestDeadLettersAreDocumented finds what a dead letter tells in the runbook.
func TestDeadLettersAreDocumented(t *testing.T) {
	_, runbook, found := strings.Cut(docblocks.Read(t, "../docs/operations.md"), "\n### IdempotencyDeadLetters\n")
	if !found {
		t.Fatal("there is no runbook")
	}
	for _, reason := range []string{consumer.ReasonFailed, consumer.ReasonMismatch, consumer.ReasonBadKey} {
		if !strings.Contains(runbook, "\n| `"+reason+"` | ") {
			t.Errorf("reason %s is not in the table", reason)
		}
	}
	for _, header := range []string{
		consumer.HeaderReason, consumer.HeaderError, consumer.HeaderScope, consumer.HeaderAttempts,
		consumer.HeaderTopic, consumer.HeaderPartition, consumer.HeaderOffset, consumer.HeaderTimestamp,
	} {
		if short := "`-" + strings.TrimPrefix(header, "cdc-dlq-") + "`"; !strings.Contains(runbook, "`"+header+"`") && !strings.Contains(runbook, short) {
			t.Errorf("header %s is not mentioned", header)
		}
	}
}
