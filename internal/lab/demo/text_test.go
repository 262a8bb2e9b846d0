package demo

import (
	"slices"
	"testing"
)

func TestPadCountsColumnsOfTheTerminal(t *testing.T) {
	for text, want := range map[string]string{
		"café":             "café  ",
		"茶筅":               "茶筅  ",
		"too long already": "too long already",
	} {
		if got := pad(text, 6); got != want {
			t.Errorf("pad(%q, 6) = %q, want %q", text, got, want)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []string
	}{
		{"", []string{""}},
		{"abcd", []string{"abcd"}},
		{"abcdefghi", []string{"abcd", "efgh", "i"}},
		{"a茶茶", []string{"a茶", "茶"}},
	} {
		if got := wrap(tt.text, 4); !slices.Equal(got, tt.want) {
			t.Errorf("wrap(%q, 4) = %q, want %q", tt.text, got, tt.want)
		}
	}
}
