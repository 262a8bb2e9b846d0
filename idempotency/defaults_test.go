package idempotency

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/docblocks"
)

func TestDefaultsAreDocumented(t *testing.T) {
	docblocks.Defaults(t, "../docs/idempotency-library.md", "idempotency.Options", map[string]any{
		"Lease":       defaultLease,
		"Retention":   defaultRetention,
		"MaxAttempts": defaultMaxAttempts,
		"MaxVanished": defaultMaxVanished,
		"FirstRetry":  defaultFirstRetry,
		"LastRetry":   defaultLastRetry,
	})
}
