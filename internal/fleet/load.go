package fleet

import (
	"math"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/fleet/placement"
)

const (
	// drift is the part by which a member's load has to change before the group is told, and
	// least the change in events a second.
	drift = 0.25
	least = 50
	// driftPause is the least time between two such news.
	driftPause = time.Minute
)

// weigh tells the group of another load.
func (m *Membership) weigh(load float64) {
	s := &m.state
	told := 0.0
	for _, h := range s.told.Holds {
		told += placement.Weight(h.Rate)
	}
	change := math.Abs(load - told)
	if change < least || change < drift*told || time.Since(s.weighed) < driftPause {
		return
	}
	s.weighed, s.again = time.Now(), true
}
