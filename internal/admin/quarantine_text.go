package admin

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// WriteText prints the list for people.
func (l *QuarantineList) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "topic %s: %d keys parked, with %d events of at most %d\n", l.Topic, l.Keys, l.Events, l.Limit)
	for i := range l.Listed {
		b.WriteString(l.Listed[i].line())
	}
	if more := l.Keys - len(l.Listed); more > 0 {
		fmt.Fprintf(&b, "    and %d keys more\n", more)
	}
	for _, c := range l.Waiting {
		fmt.Fprintf(&b, "waiting for an active instance: %s of %d events, commanded %s\n", c.Verb, len(c.Numbers), c.At.Format(time.RFC3339))
	}
	if l.Others > 0 {
		fmt.Fprintf(&b, "%d other records are none of cdc-outbox\n", l.Others)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// line is the key's in a list.
func (k *ParkedKey) line() string {
	key, topic := "no key", "(no topic)"
	if k.Key != nil {
		key = fmt.Sprintf("key %q", *k.Key)
	}
	if k.Topic != "" {
		topic = plain(k.Topic)
	}
	way := ""
	if !k.Retry {
		way = "        no record could be made of the row: edit it, or skip it\n"
	}
	return fmt.Sprintf("    %d  %s  %s  %d events since %s\n        %s  %s: %s\n%s", k.Number, topic, key, k.Events, k.Since.Format(time.RFC3339), plain(k.ID), plain(k.Reason), plain(k.Error), way)
}

// WriteText prints the event for people.
func (e *ParkedEvent) WriteText(w io.Writer) error {
	return (&unpublished{
		reason: e.Reason, err: e.Error, table: e.Table, position: fmt.Sprintf("%s/%d", e.LSN, e.Seq), time: e.EventTime,
		topic: e.Topic, id: e.EventID, key: e.FullKey, headers: e.Headers, value: e.Value,
	}).write(w, "event", fmt.Sprintf("%d, parked %s", e.Number, e.Since.Format(time.RFC3339Nano)), "behind", fmt.Sprint(e.Behind))
}

// WriteText prints the command for people.
func (r *QuarantineCommand) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "topic %s: %s of %d keys\n", r.Topic, r.Verb, r.Keys)
	for i := range r.Chosen {
		b.WriteString(r.Chosen[i].line())
	}
	if more := r.Keys - len(r.Chosen); more > 0 {
		fmt.Fprintf(&b, "    and %d keys more\n", more)
	}
	switch {
	case r.Answer != nil:
		fmt.Fprintf(&b, "published %d events, left out %d\n", r.Answer.Published, r.Answer.Dropped)
		if r.Answer.Before > 0 {
			fmt.Fprintf(&b, "%d events were settled before: by an instance that has died since, or by another command\n", r.Answer.Before)
		}
		for _, refusal := range r.Answer.Refusals {
			fmt.Fprintf(&b, "event %d: %s\n        %s\n", refusal.Number, plain(refusal.Why), plain(refusal.Remedy))
		}
	case r.Command == "" && r.Keys > 0:
		b.WriteString("nothing was done: repeat the command with --yes\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
