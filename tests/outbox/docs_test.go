package outbox_test

import (
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/docblocks"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// TestDocumentationIsWhatRuns finds each block of code of the documentation in
// an example that runs, or in the SQL that is tested.
func TestDocumentationIsWhatRuns(t *testing.T) {
	// The quoted statements are comments in the file.
	partitioned := strings.NewReplacer("--       ", "", "--   ", "").Replace(docblocks.Read(t, "../../outbox/partitioned.sql"))
	docblocks.Check(t, "../../docs/outbox-library.md", 9, docblocks.Sources{
		"go":  docblocks.Read(t, "example_test.go", "example_table_test.go", "tracing/tracing_test.go"),
		"sql": docblocks.Read(t, "../../outbox/schema.sql") + partitioned,
	})
}

func TestDefaultPrefixIsDocumented(t *testing.T) {
	if want := "The prefix is `" + outbox.DefaultPrefix + "` unless"; !strings.Contains(docblocks.Read(t, "../../docs/outbox-library.md"), want) {
		t.Errorf("the documentation does not say: %s", want)
	}
}
