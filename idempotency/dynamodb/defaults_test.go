package dynamodb

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/docblocks"
)

func TestDefaultsAreDocumented(t *testing.T) {
	docblocks.Defaults(t, "../../docs/idempotency-library.md", "dynamodb.Options", map[string]any{
		"Margin": defaultMargin,
	})
}
