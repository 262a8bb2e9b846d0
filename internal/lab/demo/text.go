package demo

import (
	"strings"

	"golang.org/x/text/width"
)

// columns is how many columns of a terminal the text takes: wide characters
// such as 茶 take two (Unicode Standard Annex 11).
func columns(text string) int {
	n := 0
	for _, r := range text {
		n += runeColumns(r)
	}
	return n
}

func runeColumns(r rune) int {
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}

// pad fills the text with spaces up to n columns.
func pad(text string, n int) string {
	return text + strings.Repeat(" ", max(0, n-columns(text)))
}

// wrap breaks the text into parts of at most n columns.
func wrap(text string, n int) []string {
	var parts []string
	start, used := 0, 0
	for i, r := range text {
		w := runeColumns(r)
		if used+w > n {
			parts = append(parts, text[start:i])
			start, used = i, 0
		}
		used += w
	}
	return append(parts, text[start:])
}
