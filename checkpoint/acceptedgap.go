package checkpoint

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// AcceptedGap is a loss accepted by an operator, whose events may still be missing in
// Kafka. The gap stays in the checkpoint until all are published, or given up.
type AcceptedGap struct {
	// ID is known to readers of the checkpoint only: see Mending.
	ID string
	// From is the position up to which everything was published, in the log of SystemID
	// and Timeline; 0: not known. To is where the stream went on.
	From, To pg.LSN
	SystemID string
	Timeline int32
	// Since is the commit of the last transaction known to be published: only later
	// transactions are in the gap. Zero: transactions of any time may be.
	Since time.Time
	// Accepted is the time of the first decision, if there were several.
	Accepted time.Time
	Reason   string // of the last decision
}

// GapMargin is how much older than its transaction's commit a row may look: by the
// length of the transaction, and by the difference of two clocks.
const GapMargin = time.Hour

// Accept returns the gap after the acceptance of a loss, together with an earlier gap. c is
// the checkpoint before; nil: none. whole: transactions of any time may be missing.
func (c *Checkpoint) Accept(loss error, whole bool) *AcceptedGap {
	now := time.Now().UTC().Truncate(time.Second)
	g := &AcceptedGap{ID: rand.Text(), Accepted: now}
	if loss != nil {
		g.Reason = loss.Error()
	}
	if c == nil {
		return g
	}
	g.From, g.SystemID, g.Timeline = c.LSN, c.SystemID, c.Timeline
	if gap := gapOf(loss); gap != nil && !gap.Diverged && !whole && !c.Snapshot {
		g.Since = c.begins()
	}
	if was := c.Accepted; was != nil {
		g.From, g.SystemID, g.Timeline, g.Accepted = was.From, was.SystemID, was.Timeline, was.Accepted
		if was.Since.Before(g.Since) { // zero is before all
			g.Since = was.Since
		}
	}
	return g
}

// begins is the commit of the last transaction known to be published, to its end or in
// part; zero: not known.
func (c *Checkpoint) begins() time.Time {
	if !c.Cut.IsZero() && (c.Landmark.XID == 0 || c.Cut.Time.Before(c.Landmark.Time)) {
		return c.Cut.Time
	}
	if c.Landmark.XID == 0 {
		return time.Time{}
	}
	return c.Landmark.Time
}

// Goes returns the gap for a checkpoint at another position, perhaps of another server.
func (g *AcceptedGap) Goes(to pg.LSN) *AcceptedGap {
	if g == nil {
		return nil
	}
	gap := *g
	gap.To = to
	return &gap
}

// Begin is the latest time from which on rows have to be compared, to have all of the gap;
// zero: those of any time.
func (g *AcceptedGap) Begin() time.Time {
	if g.Since.IsZero() {
		return time.Time{}
	}
	return g.Since.Add(-GapMargin).Truncate(time.Second)
}

// Within reports whether rows from since on (zero: of any time) have all of the gap.
func (g *AcceptedGap) Within(since time.Time) bool {
	return since.IsZero() || !g.Since.IsZero() && !since.After(g.Begin())
}

// String names the gap for an operator.
func (g *AcceptedGap) String() string {
	from := "an unknown position"
	if g.From != 0 {
		from = g.From.String()
	}
	text := fmt.Sprintf("accepted at %s, between %s and %s", g.Accepted.Format(time.RFC3339), from, g.To)
	if !g.Since.IsZero() {
		text += fmt.Sprintf(", of transactions after %s", g.Since.UTC().Format(time.RFC3339))
	}
	return text
}

// Mending tells the connector, in a message of the log, that a gap need not be noted any
// longer. Whoever may write such a message may not know the gap's ID.
type Mending struct {
	Slot  string `json:"slot"`
	Gap   string `json:"gap"` // its ID
	Given bool   `json:"given_up,omitempty"`
}

// Mends reports whether the gap need not be noted any longer.
func (m *Mending) Mends(g *AcceptedGap) bool { return g != nil && g.ID != "" && g.ID == m.Gap }
