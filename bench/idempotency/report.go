package main

import (
	"fmt"
	"io"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
)

// printCosts prints a store's cost beside the bare client's.
func printCosts(out io.Writer, title string, all []measured) {
	fmt.Fprintf(out, "\n%s:\n\n", title)
	fmt.Fprintln(out, "| store | bare round trip | claims/s | claim | claim and completion add | duplicate |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|")
	for _, m := range all {
		roundTrip := "–"
		if m.calls[bare] != nil {
			roundTrip = m.time(bare)
		}
		rate := m.median(func(s sample) float64 { return float64(m.workers) / s[claim].Seconds() })
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s |\n", m.name, roundTrip, thousands(rate),
			m.cost(func(s sample) time.Duration { return s[claim] }),
			m.cost(sample.added),
			m.cost(func(s sample) time.Duration { return s[duplicate] }))
	}
}

// cost is a time, also in bare round trips.
func (m measured) cost(of func(sample) time.Duration) string {
	text := micros(m.median(func(s sample) float64 { return float64(of(s)) }))
	if m.calls[bare] == nil {
		return text
	}
	return fmt.Sprintf("%s, %.1f ×", text, m.median(func(s sample) float64 { return float64(of(s)) / float64(s[bare]) }))
}

// printWindow prints a window's gain. The store by itself is the subject before the
// store with the window.
func printWindow(out io.Writer, all []measured) {
	fmt.Fprint(out, "\nDuplicates, one at a time:\n\n")
	fmt.Fprintln(out, "| store | its own answer | behind a window, confirmed by the store | behind a trusted window | the window's look-up | its speed |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|")
	for i, m := range all {
		if m.calls[lookUp] == nil {
			continue
		}
		store := all[i-1]
		var faster []float64
		for n, s := range m.samples {
			faster = append(faster, float64(store.samples[n][duplicate])/float64(s[lookUp]))
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %.0f × |\n", store.name,
			store.time(duplicate), m.time(duplicate), m.time(trusted), m.time(lookUp), figures.Median(faster))
	}
}

// time shows the time of a call of the phase.
func (m measured) time(p phase) string {
	return micros(m.median(func(s sample) float64 { return float64(s[p]) }))
}

// micros shows nanoseconds.
func micros(ns float64) string {
	switch us := ns / 1e3; {
	case us < 1:
		return fmt.Sprintf("%.2f µs", us)
	case us < 10:
		return fmt.Sprintf("%.1f µs", us)
	default:
		return fmt.Sprintf("%.0f µs", us)
	}
}

// thousands shows a rate, rounded to hundreds, with separators.
func thousands(rate float64) string {
	n := int64(rate)
	if n >= 1000 {
		n = (n + 50) / 100 * 100
	}
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
