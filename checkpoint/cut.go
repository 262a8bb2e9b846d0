package checkpoint

import "github.com/cdc-outbox/cdc-outbox/internal/pg"

// Cut is a place within a transaction: the events up to the index Seq are
// acked. The zero Cut is none.
type Cut struct {
	Landmark
	Seq uint32
}

// IsZero reports whether c is none.
func (c Cut) IsZero() bool { return c == Cut{} }

// Position is the last acked event's.
func (c Cut) Position() pg.Position { return pg.Position{CommitLSN: c.Commit, Seq: c.Seq} }

// beyond reports whether c is further than o.
func (c Cut) beyond(o Cut) bool { return c.Position().Compare(o.Position()) > 0 }

// Reached returns the checkpoint with everything acked since: all transactions
// ending at or before lsn, landmark being the last of them with an event, and
// of a further transaction the events up to cut. The checkpoint never goes
// back.
func (c Checkpoint) Reached(lsn pg.LSN, landmark Landmark, cut Cut) Checkpoint {
	c.LSN = max(c.LSN, lsn)
	if landmark.Commit > c.Landmark.Commit {
		c.Landmark = landmark
	}
	if cut.beyond(c.Cut) {
		c.Cut = cut
	}
	if !c.Cut.IsZero() && c.Cut.Commit < c.LSN { // the transaction is over
		if c.Cut.Commit > c.Landmark.Commit {
			c.Landmark = c.Cut.Landmark
		}
		c.Cut = Cut{}
	}
	c.Doubtful = within(c, c.Doubtful)
	return c
}
