package checkpoint

import (
	"errors"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// Gap is a loss of log: the slot cannot be read any more, or not from the checkpoint on.
// A comparison of the tables with Kafka by event id may still find the missing events.
type Gap struct {
	// Diverged: the server's log is another than the log read before, and so are the ids
	// of transactions.
	Diverged bool `json:"diverged,omitempty"`
}

// gapError is a loss with its Gap.
type gapError struct {
	error
	gap Gap
}

// Unwrap returns the loss.
func (e *gapError) Unwrap() error { return e.error }

// lacking adds the Gap to a loss.
func lacking(loss error) error { return &gapError{loss, Gap{}} }

// diverging adds the Gap to a loss of another log.
func diverging(loss error) error { return &gapError{loss, Gap{Diverged: true}} }

// gapOf is the Gap of a loss; nil: it is another loss.
func gapOf(err error) *Gap {
	if e, ok := errors.AsType[*gapError](err); ok {
		return &e.gap
	}
	return nil
}

// LacksLog reports whether an error is a loss of log.
func LacksLog(err error) bool { return gapOf(err) != nil }

// GapIn returns the Gap of a loss found by Verify or a Replay; nil: a comparison by event
// id cannot mend the loss. Of another server, another publication or another source, rows
// without a record prove nothing. Nor do they of a slot that was not read yet, or that
// another program read last.
func (c *Checkpoint) GapIn(loss error, seen Server) *Gap {
	found := gapOf(loss)
	if found == nil || c == nil || c.Made || c.Adopted {
		return nil
	}
	gap := *found
	now := *c
	now.Lost = nil // or it hides the others
	_, err := Verify(&now, seen)
	if err != nil {
		if gap.Diverged = gap.Diverged || diverged(err); gapOf(err) == nil {
			return nil
		}
	}
	if !catalog.SamePublication(c.Publication, seen.Publication) || sameMessages(c, &seen) != nil {
		return nil
	}
	return &gap
}

// OfferRepair puts a start with errors.on_loss: repair before catalog.AcceptGap, in the
// remedy of a loss with a Gap. In a fleet such a start would be another member, with other
// specifications of all pipelines.
func OfferRepair(loss error, fleet bool) error {
	first := "`cdc-outbox run --set errors.on_loss=repair` makes"
	if fleet {
		first = "a start of the members with errors.on_loss: repair of this pipeline in their file makes"
	}
	first += " a new slot, publishes the missing events first, and then streams; or "
	return failure.Lossf(strings.Replace(failure.RemedyOf(loss), catalog.AcceptGap, first+catalog.AcceptGap, 1), "%w", loss)
}

func diverged(err error) bool {
	gap := gapOf(err)
	return gap != nil && gap.Diverged
}
