package postgres

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/docblocks"
)

func TestDefaultsAreDocumented(t *testing.T) {
	docblocks.Defaults(t, "../../docs/idempotency-library.md", "postgres.Options", map[string]any{
		"IdleTimeout":    defaultIdleTimeout,
		"MaxResultBytes": defaultMaxResultBytes,
	})
}
