package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/stream"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// AcceptedGap is a gap of the checkpoint in a report. From is in the log of System and Line.
type AcceptedGap struct {
	stream.GapStatus
	System string `json:"system_id,omitempty"`
	Line   int32  `json:"timeline,omitempty"`
	text   string
}

func describeGap(g *checkpoint.AcceptedGap) *AcceptedGap {
	if g == nil {
		return nil
	}
	return &AcceptedGap{*stream.DescribeGap(g), g.SystemID, g.Timeline, g.String()}
}

// MendedGap is the fate of an accepted gap.
type MendedGap struct {
	AcceptedGap
	// Ended: the checkpoint does not have the gap any more.
	Ended bool `json:"ended"`
	// Why is the reason for a gap not ended, and Remedy its end.
	Why    string `json:"why,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

// acceptedGap reads the gap noted in the checkpoint; nil: none.
func (s *session) acceptedGap(ctx context.Context) (*checkpoint.AcceptedGap, error) {
	v := &view{}
	if err := loadCheckpoint(ctx, s.cfg, v); err != nil || v.stored == nil {
		return nil, err
	}
	return v.stored.Accepted, nil
}

// leftUnknown are the rows a comparison knows nothing of.
type leftUnknown struct {
	youngest int64 // time of a row, in microseconds
	timeless int64 // rows of no time
}

// add notes a row.
func (u *leftUnknown) add(e *audit.Entry) {
	if e.At == audit.NoTime {
		u.timeless++
		return
	}
	u.youngest = max(u.youngest, e.At)
}

// reaches reports whether a row of the gap may be among the unknown ones.
func (u *leftUnknown) reaches(g *checkpoint.AcceptedGap) bool {
	return u.timeless > 0 || u.youngest != 0 && !time.UnixMicro(u.youngest).Before(g.Begin())
}

// partial reports whether the options choose rows by more than their begin.
func (o *AuditOptions) partial() bool {
	return len(o.IDs)+len(o.Keys)+len(o.Tables) > 0 || o.Where != "" || o.XIDs != (XIDs{}) || !o.Until.IsZero() || o.marked != nil
}

// leaves returns why the gap is not known to be closed after a repair, and the remedy; "" for none.
func (r *repair) leaves(g *checkpoint.AcceptedGap, publish bool) (why, remedy string) {
	since := ""
	if !g.Since.IsZero() {
		since = ", or with --since " + g.Begin().UTC().Format(time.RFC3339) + " or earlier"
	}
	unknown := r.unknown
	if unknown.timeless += r.twins + r.rows.Nameless + r.rows.Unrouted; r.cfg.Errors.OnBadEvent == transform.BadEventSkip {
		unknown.timeless -= r.rows.Unrouted
	}
	switch {
	case !publish:
		return "without --publish this command changes nothing", stream.GapRemedy
	case r.opts.partial() || !g.Within(r.opts.Since):
		return "this repair looked at a part of its rows", "`cdc-outbox repair --publish` without a choice of rows" + since
	case unknown.reaches(g):
		return "of some of its rows nothing is known (see above)",
			"see in the application's own data whether they are published, and publish the others with `cdc-outbox replay`; then `cdc-outbox repair --give-up --yes`"
	case r.wait == nil:
		return "nothing reads the slot", "first `cdc-outbox setup --accept-gap`, then `cdc-outbox run` and, beside it, this command"
	}
	return "", ""
}

// close has the connector forget a repaired gap.
func (r *repair) close(ctx context.Context, g *checkpoint.AcceptedGap, publish bool) error {
	if g == nil {
		return nil
	}
	r.report.Gap = &MendedGap{AcceptedGap: *describeGap(g)}
	if r.report.Gap.Why, r.report.Gap.Remedy = r.leaves(g, publish); r.report.Gap.Why != "" {
		return nil
	}
	return r.end(ctx, r.report.Gap, g, false, r.note)
}

// takenUp bounds the wait for the connector to read a message, and to save.
var takenUp = 30 * time.Second

// end asks the reader of the slot to forget the gap, and waits until the checkpoint has
// no gap. Only the slot's reader may write the checkpoint. If nobody reads the
// slot, the next reader does.
func (s *session) end(ctx context.Context, r *MendedGap, g *checkpoint.AcceptedGap, given bool, note func(string)) error {
	content, err := json.Marshal(checkpoint.Mending{Slot: s.cfg.Source.Slot, Gap: g.ID, Given: given})
	if err == nil {
		err = catalog.EmitNotice(ctx, s.conn, content)
	}
	if err != nil {
		return err
	}
	note("waiting for the connector to forget the accepted gap")
	for until := time.Now().Add(takenUp); ; {
		now, err := s.acceptedGap(ctx)
		switch {
		case err == nil && (now == nil || now.ID != g.ID):
			r.Ended = true
			return nil
		case ctx.Err() != nil:
			return interrupted(ctx.Err())
		case time.Now().After(until):
			r.Why = "the connector has not forgotten it yet"
			r.Remedy = "none needed: it does once it reads the log up to here, after a start, too; `cdc-outbox status` shows the gap until then"
			return nil
		}
		if err := backoff.Sleep(ctx, takenUp/100); err != nil {
			return interrupted(err)
		}
	}
}

// line tells of the gap.
func (g *MendedGap) line(w io.Writer) {
	if g == nil {
		return
	}
	if g.Ended {
		fmt.Fprintf(w, "the gap %s is closed: retention goes on\n", g.text)
		return
	}
	fmt.Fprintf(w, "the gap %s stays noted, and retention waits: %s -> %s\n", g.text, g.Why, g.Remedy)
}

// GivenUpGap is the end of an accepted gap without a repair.
type GivenUpGap struct {
	Gap  *MendedGap `json:"accepted_gap"` // nil: there is none
	Done bool       `json:"done"`         // the connector was asked to forget it
}

// GiveUpGap has the connector forget the accepted gap: missing events stay missing, and
// retention goes on. Without yes GiveUpGap changes nothing.
func GiveUpGap(ctx context.Context, cfg *config.Config, yes bool, progress io.Writer) (*GivenUpGap, error) {
	told := &notes{to: progress}
	if cfg.Source.Mode == config.ModePoll {
		return nil, noSlot("repair --give-up", "there is no gap: run publishes the rows that are not marked as published")
	}
	s, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.primary(ctx); err != nil {
		return nil, err
	}
	g, err := s.acceptedGap(ctx)
	if err != nil || g == nil {
		return &GivenUpGap{}, err
	}
	r := &GivenUpGap{Gap: &MendedGap{AcceptedGap: *describeGap(g)}}
	slot, exists, err := catalog.ReadSlot(ctx, s.conn, cfg.Source.Slot)
	if err != nil {
		return nil, err
	}
	if _, lost := slot.Lost(); !exists || lost {
		return r, failure.Configf("first `cdc-outbox setup --accept-gap`", "slot %q cannot be read, so nobody would hear of it", cfg.Source.Slot)
	}
	if !yes {
		return r, preview("repeat it with --yes")
	}
	r.Done = true
	return r, s.end(ctx, r.Gap, g, true, told.note)
}

// WriteText prints the report for people.
func (r *GivenUpGap) WriteText(w io.Writer) error {
	var l lines
	switch {
	case r.Gap == nil:
		l.printf("The checkpoint has no accepted gap.\n")
	case !r.Done:
		l.printf("The gap %s would be given up: what is missing of it in Kafka stays missing, and retention may delete its rows. `cdc-outbox repair` lists what is missing.\n", r.Gap.text)
	case r.Gap.Ended:
		l.printf("The gap %s is given up: retention goes on.\n", r.Gap.text)
	default:
		l.printf("The gap %s will be given up: %s. %s\n", r.Gap.text, r.Gap.Why, r.Gap.Remedy)
	}
	return l.to(w)
}
