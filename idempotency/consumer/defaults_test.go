package consumer

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/docblocks"
)

func TestDefaultsAreDocumented(t *testing.T) {
	docblocks.Defaults(t, "../../docs/idempotency-library.md", "consumer.Config", map[string]any{
		"Concurrency":        defaultConcurrency,
		"MaxBufferedRecords": defaultMaxBufferedRecords,
		"MaxBufferedBytes":   defaultMaxBufferedBytes,
		"CommitInterval":     defaultCommitInterval,
		"RevokeTimeout":      defaultRevokeTimeout,
		"DrainTimeout":       defaultDrainTimeout,
		"BackoffFirst":       defaultBackoffFirst,
		"BackoffLongest":     defaultBackoffLongest,
	})
}
