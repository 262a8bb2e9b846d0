package redis

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/docblocks"
)

func TestDefaultsAreDocumented(t *testing.T) {
	docblocks.Defaults(t, "../../docs/idempotency-library.md", "redis.Options", map[string]any{
		"Prefix":         defaultPrefix,
		"MaxResultBytes": defaultMaxResultBytes,
		"WaitTimeout":    defaultWaitTimeout,
	})
}
