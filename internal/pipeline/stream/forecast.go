package stream

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// Forecast is the growth of the log kept by the slot, as of the last look.
type Forecast struct {
	// GrowthBytesPerSecond is how fast the kept log grows.
	GrowthBytesPerSecond float64 `json:"growth_bytes_per_second"`
	// LimitInSeconds is when the server may invalidate the slot at the present rate
	// (max_slot_wal_keep_size); nil if only the disk limits the log: PostgreSQL does
	// not tell the free space.
	LimitInSeconds *float64 `json:"limit_in_seconds,omitempty"`
	// HeldBackBy is the cause that holds the slot back.
	HeldBackBy string `json:"held_back_by,omitempty"`
}

const (
	// forecastEvery is the time between two marks, forecastMarks how many are kept:
	// some minutes, because a server moves a slot's restart_lsn in leaps.
	forecastEvery = 5 * time.Second
	forecastMarks = 24
	// forecastLeast is how much a slot may keep without a forecast: a few segments.
	forecastLeast = 64 << 20
)

// trend remembers how much log the slot kept, at the last looks. Not safe for
// concurrent use.
type trend struct{ marks []mark }

type mark struct {
	at       time.Time
	retained int64
}

// see notes a look.
func (t *trend) see(at time.Time, retained int64) {
	if n := len(t.marks); n > 0 && at.Sub(t.marks[n-1].at) < forecastEvery {
		return
	}
	if len(t.marks) == forecastMarks {
		t.marks = append(t.marks[:0], t.marks[1:]...)
	}
	t.marks = append(t.marks, mark{at, retained})
}

// growth is in bytes per second; 0 if the slot keeps up. The least kept logs of the
// two halves of the time are compared, as the size goes up and down while all is well.
func (t *trend) growth() float64 {
	n := len(t.marks)
	if n < 4 || t.marks[n-1].retained < forecastLeast {
		return 0
	}
	before, after := least(t.marks[:n/2]), least(t.marks[n/2:])
	if after.retained <= before.retained {
		return 0
	}
	return float64(after.retained-before.retained) / after.at.Sub(before.at).Seconds()
}

// least returns the mark with the least log, of at least one.
func least(marks []mark) mark {
	return slices.MinFunc(marks, func(a, b mark) int { return cmp.Compare(a.retained, b.retained) })
}

// forecast returns nil without a threat. safe is Slot.SafeWALSize.
func (t *trend) forecast(safe *int64, heldBackBy string) *Forecast {
	rate := t.growth()
	if rate <= 0 {
		return nil
	}
	f := &Forecast{GrowthBytesPerSecond: rate, HeldBackBy: heldBackBy}
	if safe != nil {
		in := float64(max(0, *safe)) / rate
		f.LimitInSeconds = &in
	}
	return f
}

// keptBy names the transaction holding back the slot behind the confirmed position;
// "": none.
func keptBy(ctx context.Context, conn *pgx.Conn, slot catalog.Slot) string {
	if slot.RestartLSN == 0 || int64(slot.ConfirmedFlush)-int64(slot.RestartLSN) < forecastLeast {
		return ""
	}
	writers, err := catalog.ReadWriters(ctx, conn)
	if err != nil || len(writers) == 0 { // the next look will tell
		return ""
	}
	return writers[0].Blocker().String()
}
