package admin

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// WriteText prints the letters for people.
func (r *DeadLetters) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "topic %s: %d letters", r.Topic, r.Letters)
	for i, reason := range slices.Sorted(maps.Keys(r.Reasons)) {
		if i == 0 {
			b.WriteString(": ")
		} else {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d %s", r.Reasons[reason], plain(reason))
	}
	b.WriteString("\n")
	if r.Others > 0 {
		fmt.Fprintf(&b, "%d other records are no letters of cdc-outbox\n", r.Others)
	}
	if more := r.Letters - int64(len(r.Newest)); more > 0 && len(r.Newest) > 0 {
		fmt.Fprintf(&b, "the newest %d:\n", len(r.Newest))
	}
	for _, l := range r.Newest {
		b.WriteString(l.line())
		fmt.Fprintf(&b, "        %s\n", plain(l.Error))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// line is the letter's in a list.
func (l *DeadLetter) line() string {
	cut := ""
	if l.Cut {
		cut = "  cut"
	}
	topic := "(no topic)"
	if l.Topic != "" {
		topic = plain(l.Topic)
	}
	return fmt.Sprintf("    %s  %s  %s  key %q  %s  %s%s\n", l.LetterPlace, l.Time.Format(time.RFC3339), plain(l.ID), l.Key, topic, plain(l.Reason), cut)
}

// WriteText prints the report for people.
func (r *Redriven) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "topic %s: %d letters chosen, %d redriven before, %d refused, %d waiting, %d uncertain, %d to publish\n",
		r.DeadLetterTopic, r.Letters, r.Before, r.Refused, r.Waiting, r.Uncertain, r.ToPublish)
	for i := range r.Listed {
		b.WriteString(r.Listed[i].line())
	}
	if more := r.ToPublish - int64(len(r.Listed)); more > 0 && len(r.Listed) > 0 {
		fmt.Fprintf(&b, "    and %d more\n", more)
	}
	for i := range r.Refusals {
		refusal := &r.Refusals[i]
		fmt.Fprintf(&b, "refused:\n%s        %s\n        %s\n", refusal.line(), plain(refusal.Why), plain(refusal.Remedy))
	}
	if more := r.Refused - int64(len(r.Refusals)); more > 0 {
		fmt.Fprintf(&b, "and %d more refused\n", more)
	}
	for _, limit := range r.Limits {
		fmt.Fprintf(&b, "not known: %s\n", limit)
	}
	switch {
	case r.publish:
		fmt.Fprintf(&b, "published %d\n", r.Published)
	case r.ToPublish > 0:
		b.WriteString("nothing was published: repeat the command with --publish\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
