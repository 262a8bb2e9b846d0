package memory

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/docblocks"
)

func TestDefaultsAreDocumented(t *testing.T) {
	docblocks.Defaults(t, "../../docs/idempotency-library.md", "memory.Options", map[string]any{
		"Records":        defaultRecords,
		"MaxResultBytes": defaultMaxResultBytes,
	})
	docblocks.Defaults(t, "../../docs/idempotency-library.md", "memory.WindowOptions", map[string]any{
		"Exact":          defaultExact,
		"Filtered":       defaultFiltered,
		"FalsePositives": defaultFalsePositives,
	})
}
