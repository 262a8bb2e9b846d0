package pipeline

import (
	"errors"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/stream"
)

// rounds tell whether a pipeline begins anew after its end, and when.
type rounds struct{ anew, repair backoff.Series }

// Waits until a pipeline begins anew, and until a repair. A pipeline running for
// anewReset, or repairReset, starts them from the first, too. A loss after each repair
// has a cause outside, and each repair reads topics.
var (
	anewWaits   = backoff.Range{First: 50 * time.Millisecond, Longest: 5 * time.Second}
	repairWaits = backoff.Range{First: 200 * time.Millisecond, Longest: time.Minute}
)

const (
	anewReset   = 30 * time.Second
	repairReset = 10 * time.Minute
)

func newRounds() *rounds {
	return &rounds{backoff.Series{Range: anewWaits}, backoff.Series{Range: repairWaits}}
}

// after decides after the pipeline's end with the error, ran being how long it had run.
func (r *rounds) after(err error, ran time.Duration) (wait time.Duration, again bool) {
	switch {
	case errors.Is(err, stream.ErrToRepair):
		if ran > repairReset {
			r.repair.Reset()
		}
		return r.repair.Next(), true
	case errors.Is(err, stream.ErrBeginAnew) && failure.ClassOf(err) == failure.Transient:
		if ran > anewReset {
			r.anew.Reset()
		}
		return r.anew.Next(), true
	}
	return 0, false
}
