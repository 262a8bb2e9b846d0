package admin

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/shadow"
)

// ShadowState is what is known of Debezium, and of the comparison's own slot.
type ShadowState struct {
	Slot      string    `json:"slot"` // Debezium's
	Exists    bool      `json:"exists"`
	Active    bool      `json:"active"`
	Since     time.Time `json:"inactive_since,omitzero"`
	Confirmed string    `json:"confirmed_flush_lsn"`
	Lag       int64     `json:"lag_bytes"`
	Connector string    `json:"connector,omitempty"` // by the Connect worker
	Retained  int64     `json:"own_retained_bytes"`
	// Waiting tells that events are held in memory up to the limit, until Debezium has
	// published some.
	Waiting   bool     `json:"waiting"`
	Compacted []string `json:"compacted_topics,omitempty"`
}

// ShadowReport is the state of a comparison.
type ShadowReport struct {
	shadow.Report
	Begin   time.Time `json:"begin"`
	End     time.Time `json:"end"`
	Reading bool      `json:"reading"` // our reader is connected
	// Schema is why our reader waits for a schema; empty: it does not.
	Schema string `json:"waiting_for_schema,omitempty"`

	Topics   []string    `json:"topics"`
	Debezium ShadowState `json:"debezium"`
	Notes    []string    `json:"notes"`
}

func (s *shadowing) report() *ShadowReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &ShadowReport{Report: s.c.Report(), Begin: s.started.UTC(), End: time.Now().UTC(), Reading: s.slot != "", Schema: s.schema,
		Topics: append([]string{}, s.topics...), Debezium: s.state, Notes: append([]string{}, s.notes...)}
}

// public leaves out the contents of records: anybody may ask for it.
func (r *ShadowReport) public() *ShadowReport {
	p := *r
	p.Examples = make([]shadow.Example, len(r.Examples))
	for i, ex := range r.Examples {
		p.Examples[i] = shadow.Example{Kind: ex.Kind, At: ex.At, Parts: ex.Parts, Ours: bare(ex.Ours), Theirs: bare(ex.Theirs)}
	}
	return &p
}

func bare(r *shadow.Shown) *shadow.Shown {
	if r == nil {
		return nil
	}
	return &shadow.Shown{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Headers: [][2]string{}}
}

// verdict is nil if all that was compared is equal, and nothing is open.
func (r *ShadowReport) verdict() error {
	switch {
	case r.Renumbered > 0 && r.Renumbered == r.Differences():
		return failure.Lossf("compare the subjects in the registry: name Debezium's by encoding.value or encoding.key (subject, version, schema_id), or keep ours, as consumers ask the registry for either number",
			"%d of %d events differ from Debezium's records in the number of a schema, and in nothing else", r.Renumbered, r.Ours)
	case r.Differences() > 0:
		return failure.Lossf("see the examples and docs/how-to/debezium.md, whose table has the differences on purpose; correct the configuration, and compare again",
			"%d of %d events differ from Debezium's records: %d in their contents or place, %d without a record there, %d records there without an event, %d in the number of a schema alone",
			r.Differences(), r.Ours, r.Different, r.Missing, r.Additional, r.Renumbered)
	case r.WithoutID > 0:
		return failure.Configf("repeat the command with --by-content", "%d of %d records have no header id, by which records are compared", r.WithoutID, r.Theirs)
	case r.Schema != "":
		return &failure.Error{Class: failure.Transient, Remedy: "see that the schema is in the registry, and repeat the command", Err: fmt.Errorf("events were not compared, as ours waited for a schema: %s", r.Schema)}
	case r.Equal == 0:
		return &failure.Error{Class: failure.Transient, Remedy: "see that Debezium runs, and that events are written meanwhile; then repeat the command", Err: fmt.Errorf("nothing was compared: %s", r.debezium())}
	case r.Unjudged > 0:
		return &failure.Error{Class: failure.Transient, Remedy: "let the topics' retention be longer than Debezium's lag, and repeat the command", Err: fmt.Errorf("%d of %d events were not compared: their records may have been deleted before they were read", r.Unjudged, r.Ours)}
	case r.Pending > 0:
		return &failure.Error{Class: failure.Transient, Remedy: "see that Debezium runs, and repeat the command", Err: fmt.Errorf("%d of %d events have not come from Debezium yet: %s", r.Pending, r.Ours, r.debezium())}
	}
	return nil
}

// debezium says how Debezium is.
func (r *ShadowReport) debezium() string {
	d := r.Debezium
	var text string
	switch {
	case !d.Exists:
		text = fmt.Sprintf("slot %s is gone", d.Slot)
	case !d.Active:
		text = fmt.Sprintf("slot %s is not read since %s, %s behind", d.Slot, d.Since.UTC().Format(time.RFC3339), bytesText(d.Lag))
	default:
		text = fmt.Sprintf("slot %s is read, confirmed %s, %s behind", d.Slot, d.Confirmed, bytesText(d.Lag))
	}
	if d.Connector != "" {
		text += "; connector " + d.Connector
	}
	return text
}

func bytesText(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// WriteText prints the report for a person.
func (r *ShadowReport) WriteText(w io.Writer) error {
	var l lines
	l.line("time", "%s to %s", r.Begin.Format(time.RFC3339), r.End.Format(time.RFC3339))
	l.line("events", "%d read from the log, %d records from %d topics", r.Ours, r.Theirs, len(r.Topics))
	l.line("equal", "%d", r.Equal)
	l.line("different", "%d in contents or place, %d missing there, %d additional there", r.Different, r.Missing, r.Additional)
	if r.Renumbered > 0 {
		l.line("", "%d equal but for the number of a schema", r.Renumbered)
	}
	for _, p := range r.Parts {
		l.line("", "%d in %s", p.Count, plain(p.Part))
	}
	for _, ex := range r.Examples {
		l.example(ex)
	}
	l.line("repeated", "%d records of Debezium's, which publishes at least once", r.Repeated)
	l.line("not judged", "%d records perhaps of events before the start, %d events whose record may be gone", r.Earlier, r.Unjudged)
	if r.Bad > 0 {
		l.line("", "%d bad events here, without a record there", r.Bad)
	}
	l.line("pending", "%d events, which Debezium has not confirmed", r.Pending)
	l.line("debezium", "%s", r.debezium())
	if r.Schema != "" {
		l.line("waiting", "for a schema: %s", plain(r.Schema))
	}
	switch {
	case r.Debezium.Waiting:
		l.line("own slot", "keeps %s, waits for Debezium: the memory for events is full", bytesText(r.Debezium.Retained))
	case r.Reading:
		l.line("own slot", "keeps %s", bytesText(r.Debezium.Retained))
	}
	if r.Starts > 1 {
		l.line("starts", "%d of our reader: events between two of them are not compared", r.Starts)
	}
	if !r.Judging {
		l.line("note", "additional records cannot be told yet: Debezium has not confirmed the start of the comparison")
	}
	for _, topic := range r.Debezium.Compacted {
		l.line("note", "topic %s is compacted: an event without a record may have been there", topic)
	}
	for _, note := range r.Notes {
		l.line("note", "%s", plain(note))
	}
	return l.to(w)
}

// example prints a difference, with both records.
func (l *lines) example(ex shadow.Example) {
	what := string(ex.Kind)
	if len(ex.Parts) > 0 {
		what += " in " + plain(strings.Join(ex.Parts, ", "))
	}
	if ex.At != "" {
		what += ", of the commit at " + ex.At
	}
	l.line("example", "%s", what)
	l.record("here", ex.Ours)
	l.record("there", ex.Theirs)
}

func (l *lines) record(side string, r *shadow.Shown) {
	if r == nil {
		return
	}
	place := plain(r.Topic)
	if r.Partition >= 0 {
		place += fmt.Sprintf("/%d", r.Partition)
	}
	if r.Offset != nil {
		place += fmt.Sprintf(" at %d", *r.Offset)
	}
	null := func(s *string) string {
		if s == nil {
			return "null"
		}
		return fmt.Sprintf("%q", *s)
	}
	var headers strings.Builder
	for _, h := range r.Headers {
		fmt.Fprintf(&headers, " %s=%q", plain(h[0]), h[1])
	}
	l.line("", "%-5s %s key %s value %s%s", side, place, null(r.Key), null(r.Value), headers.String())
}

// numbers are for metrics.
func (r *ShadowReport) numbers() metrics.ShadowNumbers {
	return metrics.ShadowNumbers{
		Events: map[string]int64{"equal": r.Equal, "different": r.Different, "renumbered": r.Renumbered, "missing": r.Missing, "additional": r.Additional, "repeated": r.Repeated,
			"earlier": r.Earlier, "unjudged": r.Unjudged, "bad": r.Bad, "without_id": r.WithoutID},
		Pending: r.Pending, Lag: r.Debezium.Lag, Retained: r.Debezium.Retained, Active: r.Debezium.Active, Reading: r.Reading,
	}
}

// text is the page.
func (s *shadowing) text() string {
	var b strings.Builder
	_ = s.report().public().WriteText(&b) // never fails
	return b.String()
}

// shadowHealth answers over HTTP.
type shadowHealth struct{ *shadowing }

// Live implements httpapi.Health.
func (shadowHealth) Live() error { return nil }

// Ready implements httpapi.Health: both sides are read.
func (h shadowHealth) Ready() (ok bool, reasons []string) {
	r := h.report()
	if !r.Reading {
		reasons = append(reasons, "the log is not read")
	}
	if r.Schema != "" {
		reasons = append(reasons, "our reader waits for a schema: "+r.Schema)
	}
	if !r.Debezium.Exists || !r.Debezium.Active {
		reasons = append(reasons, r.debezium())
	}
	return len(reasons) == 0, reasons
}

// Status implements httpapi.Health.
func (h shadowHealth) Status() any { return h.report().public() }
