package checkpoint

import (
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// Lost is a loss found by a running connector, and not accepted yet. A restart
// may not find the loss again: brokers that lost records get new ones, and then
// their logs are as long as before.
type Lost struct {
	Text   string    `json:"text"`
	Remedy string    `json:"remedy"`
	Found  time.Time `json:"found"`
	// Gap is there if log was lost, and until it is repaired.
	Gap *Gap `json:"gap,omitempty"`
}

// LostBy is the loss of an error; nil: none.
func LostBy(err error) *Lost {
	if failure.ClassOf(err) != failure.Loss {
		return nil
	}
	return &Lost{Text: err.Error(), Remedy: failure.RemedyOf(err), Found: time.Now().UTC().Truncate(time.Second), Gap: gapOf(err)}
}

// Notes reports whether the checkpoint has noted the loss already.
func (c *Checkpoint) Notes(loss error) bool {
	return c.Lost != nil && strings.Contains(c.Lost.Text, loss.Error())
}

// accepted returns the loss nobody has accepted, if any.
func accepted(stored *Checkpoint, _ *Server) error {
	if stored.Lost == nil {
		return nil
	}
	loss := failure.Lossf(stored.Lost.Remedy, "a loss that was found at %s is not accepted yet: %s",
		stored.Lost.Found.Format(time.RFC3339), stored.Lost.Text)
	if stored.Lost.Gap != nil {
		loss = &gapError{loss, *stored.Lost.Gap}
	}
	return loss
}
