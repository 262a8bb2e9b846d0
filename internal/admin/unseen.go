package admin

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// unseen are the ids, keys or topics an operator asked for, as far as no row or record
// has had them yet.
type unseen map[string]bool

func setOf(texts []string) unseen {
	set := make(unseen)
	for _, text := range texts {
		set[text] = true
	}
	return set
}

// saw notes an id or a key of a row, in each form to choose the row by: PostgreSQL
// writes bytea as \xDEADBEEF, and char(n) without the blanks at the end.
func (u unseen) saw(text []byte) {
	if len(u) == 0 {
		return
	}
	delete(u, string(text))
	delete(u, strings.TrimRight(string(text), " "))
	delete(u, `\x`+hex.EncodeToString(text))
}

// mostNamed is how many an error names.
const mostNamed = 10

// String names the first.
func (u unseen) String() string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(u)) {
		texts = append(texts, fmt.Sprintf("%q", shortened(name)))
	}
	return strings.Join(texts[:min(len(texts), mostNamed)], ", ") + further(len(texts)-mostNamed)
}

func further(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}
