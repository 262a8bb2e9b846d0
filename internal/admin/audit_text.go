package admin

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// mostTopics is how many topics a person is shown.
const mostTopics = 20

// WriteText prints the report for people.
func (r *Audit) WriteText(w io.Writer) error {
	var b strings.Builder
	found, missing := "in Kafka", "missing"
	if r.replay != "" {
		found, missing = "published by replay "+r.replay, "to publish"
	}
	fmt.Fprintf(&b, "%s: %d rows, %d of them %s, %d %s, %d unknown; %d records read, %d of them repetitions\n",
		strings.Join(r.Tables, ", "), r.Rows, r.Found, found, r.Missing, missing, r.Unknown, r.Records, r.Repeated)
	if r.replay == "" {
		fmt.Fprintf(&b, "sum of the ids: %s, of those in Kafka: %s\n", r.RowSum, r.FoundSum)
	}
	for i, t := range r.Topics {
		if i == mostTopics {
			fmt.Fprintf(&b, "%s in %d other topics, too\n", missing, len(r.Topics)-i)
			break
		}
		fmt.Fprintf(&b, "%s in topic %s: %d\n", missing, t.Topic, t.Missing)
	}
	for _, e := range r.Events {
		fmt.Fprintf(&b, "    %s  key %q  %s\n", plain(e.ID), e.Key, e.Topic)
	}
	if more := r.Missing - int64(len(r.Events)); more > 0 && len(r.Events) > 0 {
		fmt.Fprintf(&b, "    and %d more\n", more)
	}
	for _, limit := range r.Limits {
		fmt.Fprintf(&b, "not known: %s\n", limit)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteText prints the report for people.
func (r *RepairReport) WriteText(w io.Writer) error {
	if err := r.Audit.WriteText(w); err != nil {
		return err
	}
	var b strings.Builder
	if r.Missing > 0 {
		r.outcome(&b)
	}
	r.Gap.line(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// outcome is the order of the missing events, and what became of them.
func (r *RepairReport) outcome(b *strings.Builder) {
	for _, table := range r.Tables {
		fmt.Fprintf(b, "order of %s: %s\n", table, r.Order[table])
	}
	switch {
	case r.publish && r.Parked > 0:
		fmt.Fprintf(b, "published %d, dead-lettered %d, skipped %d, parked %d\n", r.Published, r.DeadLettered, r.Skipped, r.Parked)
	case r.publish:
		fmt.Fprintf(b, "published %d, dead-lettered %d, skipped %d\n", r.Published, r.DeadLettered, r.Skipped)
	default:
		fmt.Fprintf(b, "nothing was published; to publish these events, repeat the command with %s\n", cmp.Or(r.flag, "--publish"))
	}
}

// WriteText prints the report for people.
func (v *Verification) WriteText(w io.Writer) error {
	if err := v.Audit.WriteText(w); err != nil {
		return err
	}
	var b lines
	v.Content.lines(&b)
	v.alone(&b)
	return b.to(w)
}

// alone has the ids that are in Kafka only, and where they were looked for.
func (v *Verification) alone(b *lines) {
	if len(v.AloneIn) == 0 {
		return
	}
	beyond := ""
	if v.AloneBeyond {
		beyond = "; a topic that no row is routed to any more is not looked at"
	}
	b.printf("ids without a row were looked for in %s%s%s\n", strings.Join(v.AloneIn[:min(len(v.AloneIn), mostTopics)], ", "), further(len(v.AloneIn)-mostTopics), beyond)
	if v.Alone == 0 {
		return
	}
	b.printf("in Kafka only: %d; %s\n", v.Alone, v.AloneWhy)
	for _, rec := range v.AloneFirst {
		b.printf("    %s  %s  %d/%d  %s\n", plain(rec.ID), rec.Topic, rec.Partition, rec.Offset, rec.Time.Format(time.RFC3339))
	}
	if more := v.Alone - int64(len(v.AloneFirst)); more > 0 && len(v.AloneFirst) > 0 {
		b.printf("    and %d more\n", more)
	}
}

// plain is a text that a terminal shows as it is, in quotes where it needs them.
func plain(text string) string {
	if quoted := strconv.Quote(text); quoted != `"`+text+`"` {
		return quoted
	}
	return text
}
