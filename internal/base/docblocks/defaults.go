package docblocks

import (
	"fmt"
	"strings"
	"testing"
)

// Defaults finds each default in the line of its options, in the document's
// table of them.
func Defaults(t *testing.T, document, options string, defaults map[string]any) {
	t.Helper()
	_, line, found := strings.Cut(Read(t, document), "\n| `"+options+"` | ")
	if !found {
		t.Fatalf("%s has no line", options)
	}
	line, _, _ = strings.Cut(line, "\n")
	for name, value := range defaults {
		// What follows is the end, or the next one.
		want := fmt.Sprintf("`%s` %v", name, value)
		if _, rest, said := strings.Cut(line, want); !said || strings.IndexAny(rest, ",; ") != 0 {
			t.Errorf("the line of %s does not say %s", options, want)
		}
	}
}
