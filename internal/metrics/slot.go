package metrics

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// slotGauges are the server's view of the slot, as of the last look at
// pg_replication_slots; NaN while nobody looks.
type slotGauges struct {
	lagBytes, retainedBytes, lagSeconds, safeBytes prometheus.Gauge
}

func (s *slotGauges) register(m *Metrics) {
	s.lagBytes = m.gauge("slot_lag_bytes", "Log between the slot's confirmed position and the end of the server's log; NaN while it is not known.")
	s.retainedBytes = m.gauge("slot_retained_bytes", "Log that the slot keeps the server from removing; NaN while it is not known.")
	s.lagSeconds = m.gauge("slot_lag_seconds", "Age of the oldest committed event that is not confirmed; 0 without one, NaN while the slot is not known.")
	s.safeBytes = m.gauge("slot_safe_wal_bytes", "Log that can still be written before the server may invalidate the slot (max_slot_wal_keep_size); +Inf without a limit, 0 when it is lost, NaN while it is not known.")
	s.forget()
}

func (s *slotGauges) forget() {
	for _, g := range []prometheus.Gauge{s.lagBytes, s.retainedBytes, s.lagSeconds, s.safeBytes} {
		g.Set(math.NaN())
	}
}

func (s *slotGauges) set(slot catalog.Slot, flush pg.LSN, lag time.Duration) {
	s.lagBytes.Set(distance(slot.ConfirmedFlush, flush))
	s.retainedBytes.Set(distance(slot.RestartLSN, flush))
	s.lagSeconds.Set(max(0, lag).Seconds())
	s.safeBytes.Set(safeBytes(slot))
}

// distance is 0 for a position that is unknown, or beyond end, which was read
// earlier.
func distance(from, end pg.LSN) float64 {
	if from == 0 || from > end {
		return 0
	}
	return float64(end - from)
}

func safeBytes(slot catalog.Slot) float64 {
	if _, lost := slot.Lost(); lost {
		return 0
	}
	if slot.SafeWALSize == nil {
		return math.Inf(1)
	}
	return max(0, float64(*slot.SafeWALSize))
}
