package admin

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/stream"
)

// judge sums up in a single sentence; mismatch is why the checkpoint does not
// fit the database, if so.
func (r *StatusReport) judge(mismatch error) string {
	db := r.PostgreSQL
	switch {
	case r.polls:
		return r.judgePolled()
	case db == nil:
		return "PostgreSQL cannot be asked: " + r.PostgreSQLError.Error
	case db.InRecovery:
		return mismatch.Error()
	case mismatch != nil:
		return fmt.Sprintf("run ends with exit code %d: %v", failure.ClassOf(mismatch).ExitCode(), mismatch)
	case db.Slot != nil && db.Slot.Lost != "":
		return "the slot is lost (" + db.Slot.Lost + "): events may be lost, a person must decide"
	case db.Slot == nil && r.Checkpoint == nil:
		return "not set up yet: there is no slot and no checkpoint"
	case db.Slot == nil:
		return "there is no slot"
	case db.Publication == nil:
		return "there is no publication, so no event reaches the slot"
	case r.PostgreSQLError != nil:
		return r.PostgreSQLError.Error
	case !db.Slot.Active && r.stuck() != "":
		return "nobody is reading the slot: " + r.stuck()
	case r.unread():
		return fmt.Sprintf("nobody is reading the slot, and nothing has been confirmed since %s: start the connector (the last line of its log says why it ended); PostgreSQL keeps the events meanwhile", r.Checkpoint.SavedAt.UTC().Format(time.RFC3339))
	case !db.Slot.Active:
		return "nobody is reading the slot: is the connector running? If it ended, the last line of its log says why"
	case r.stuck() != "":
		return "the slot is being read, but events do not get through: " + r.stuck()
	case r.CheckpointError != nil:
		return "the slot is being read, but the checkpoint cannot be looked at: " + r.CheckpointError.Error
	case r.spare() != "":
		return "the slot is being read, but " + r.spare()
	}
	return "the slot is being read"
}

// remedy is the remedy for the verdict.
func (r *StatusReport) remedy(mismatch error) string {
	db := r.PostgreSQL
	switch {
	case db == nil && r.PostgreSQLError != nil:
		return r.PostgreSQLError.Remedy
	case db == nil:
		return ""
	case mismatch != nil:
		return remedyOf(mismatch)
	case db.Slot != nil && db.Slot.Lost != "":
		return catalog.AcceptGap
	case db.Slot == nil || db.Publication == nil:
		return "cdc-outbox setup"
	case r.Instance != nil && len(r.Instance.Remedies) > 0:
		return r.Instance.Remedies[0]
	}
	return ""
}

// WriteText prints the report for a person: the verdict, then a line for each
// thing.
func (r *StatusReport) WriteText(w io.Writer) error {
	var l lines
	l.printf("%s\n", r.Verdict)
	if r.Remedy != "" {
		l.printf("-> %s\n", r.Remedy)
	}
	l.printf("\n")
	if r.polls {
		l.trouble("postgresql", r.PostgreSQLError)
		for _, st := range r.Polling {
			st.write(&l)
		}
	} else {
		r.PostgreSQL.write(&l)
		l.trouble("", r.PostgreSQLError)
		switch {
		case r.Checkpoint != nil:
			l.line("checkpoint", "%s", r.Checkpoint)
		case r.CheckpointError == nil:
			l.line("checkpoint", "none")
		default:
			l.line("checkpoint", "not known")
		}
		l.line("", "in %s", r.CheckpointStore)
		if r.Checkpoint != nil && r.Checkpoint.Gap != nil {
			l.line("gap", "%s: events may be missing, and retention waits", r.Checkpoint.Gap.text)
			l.remedy(stream.GapRemedy)
		}
		l.trouble("", r.CheckpointError)
	}
	for _, c := range r.Failover {
		if c.State != catalog.CandidatePrimary {
			l.line("failover", "%s", c)
			l.remedy(c.Remedy)
		}
	}
	l.trouble("failover", r.FailoverError)
	for _, t := range r.Transactions {
		l.line("transaction", "%s", t.holding())
		l.remedy(t.ending())
	}
	l.trouble("transactions", r.TransactionsError)
	r.Instance.write(&l)
	return l.to(w)
}

func (d *DatabaseStatus) write(l *lines) {
	if d == nil {
		l.line("postgresql", "cannot be asked")
		return
	}
	role := "primary"
	if d.InRecovery {
		role = "standby"
	}
	l.line("postgresql", "%d.%d, database %s, %s on timeline %d, WAL at %s",
		d.Version/10000, d.Version%10000, d.Database, role, d.Timeline, d.CurrentLSN)
	d.Slot.write(l)
	for _, t := range d.Tables {
		l.line("table", "%s", t)
	}
	if d.Publication == nil {
		l.line("publication", "missing")
		return
	}
	l.line("publication", "%s publishes %s", d.Publication.Name, d.Publication.Operations)
	for _, p := range d.Publication.Problems {
		l.trouble("", &p)
	}
}

func (i *InstanceStatus) write(l *lines) {
	if i == nil {
		return
	}
	state := "ready"
	if !i.Ready {
		state = "not ready"
	}
	if !slices.Contains([]string{"", i.Role, "ready"}, i.Phase) {
		state = i.Phase + ", " + state
	}
	l.line("connector", "%s, %s (http://%s)", i.Role, state, i.Address)
	for _, reason := range i.Reasons {
		l.line("", "%s", reason)
	}
	for _, remedy := range i.Remedies {
		l.remedy(remedy)
	}
}

func (s *SlotStatus) write(l *lines) {
	if s == nil {
		l.line("slot", "missing")
		return
	}
	l.line("slot", "%s, confirmed up to %s", s.Name, s.ConfirmedLSN)
	if s.Copy != "" {
		l.line("", "%s", s.Copy)
	}
	lag := formatBytes(s.LagBytes) + " behind"
	if s.LagSeconds != nil {
		lag += ", flush_lag at the last answer " + seconds(*s.LagSeconds)
	}
	l.line("lag", "%s", lag)
	limit := "no limit"
	switch {
	case s.Lost != "":
		limit = "lost"
	case s.SafeWALSize != nil:
		limit = "lost after another " + formatBytes(*s.SafeWALSize)
	}
	l.line("wal", "%s retained, wal_status %s, %s (max_slot_wal_keep_size)", formatBytes(s.RetainedBytes), s.WALStatus, limit)
	switch {
	case s.Lost != "":
		l.line("", "LOST: %s", s.Lost)
	case s.Holder == nil:
		l.line("held by", "nobody")
	case s.Holder.Since != nil:
		l.line("held by", "%s, since %s", s.Holder, s.Holder.Since.UTC().Format(time.RFC3339))
	default:
		l.line("held by", "%s", s.Holder)
	}
	l.trouble("", s.Awaits)
}

func (c *CheckpointStatus) String() string {
	text := fmt.Sprintf("%s, saved %s ago (%s)", c.LSN, seconds(c.AgeSeconds), c.SavedAt.UTC().Format(time.RFC3339))
	if c.Snapshot {
		text += ", the snapshot is not published yet"
	}
	return text
}

// seconds prints a duration with as much precision as matters.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
