package transform

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEventNameIsShort(t *testing.T) {
	for id, want := range map[string]int{"": 0, "e-1": 3, strings.Repeat("é", 100): 200, strings.Repeat("x", 1<<20): 203, "x" + strings.Repeat("é", 200): 202} {
		name := (&Event{ID: []byte(id)}).Name()
		if len(name) != want || !utf8.ValidString(name) || !strings.HasPrefix(id, strings.TrimSuffix(name, "…")) {
			t.Errorf("an id of %d bytes is shown as %d bytes, want %d: %q", len(id), len(name), want, name)
		}
	}
}

// An id that has line breaks in it does not look like a line of ours.
func TestEventNameIsOneLine(t *testing.T) {
	for id, want := range map[string]string{
		"1\nremedy: DROP TABLE outbox": `1\nremedy: DROP TABLE outbox`, "a\u2028b": `a\u2028b`, "\x1b[2J": `\x1b[2J`, "a b é": "a b é",
	} {
		if got := (&Event{ID: []byte(id)}).Name(); got != want {
			t.Errorf("%q is shown as %q, want %q", id, got, want)
		}
	}
}
