package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// progress is read when metrics are collected, so the hot path does not set
// gauges.
type progress struct {
	received, confirmed           func() pg.LSN
	inFlightEvents, inFlightBytes func() int64
}

// Observe names the functions asked when metrics are collected, in place of
// earlier ones. They are called from the collecting goroutine and must not
// block.
func (m *Metrics) Observe(received, confirmed func() pg.LSN, inFlightEvents, inFlightBytes func() int64) {
	m.progress.Store(&progress{received, confirmed, inFlightEvents, inFlightBytes})
}

// ObserveCheckpoint names the function asked for the age of the oldest
// acknowledged position that is not saved, as Observe does.
func (m *Metrics) ObserveCheckpoint(age func() time.Duration) { m.checkpointAge.Store(&age) }

// ObserveRepair names the function for the remaining work of a repair, in place of an
// earlier function; see Observe.
func (m *Metrics) ObserveRepair(ahead func() (records, events int64)) { m.repair.Store(&ahead) }

// ObserveGap names the function that tells how long ago a gap was accepted whose events
// may be missing, in place of an earlier function; see Observe.
func (m *Metrics) ObserveGap(age func() time.Duration) { m.acceptedGap.Store(&age) }

// ObserveSnapshot names the function for the published rows of a running snapshot, and
// all its rows, in place of an earlier function; see Observe.
func (m *Metrics) ObserveSnapshot(progress func() (published, rows int64)) {
	m.snapshot.Store(&progress)
}

// pair registers two gauges with the numbers of a function, 0 without the function.
func (m *Metrics) pair(of *atomic.Pointer[func() (int64, int64)], names, helps [2]string) {
	for i, name := range names {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: helps[i]}, func() float64 {
			read := of.Load()
			if read == nil {
				return 0
			}
			first, second := (*read)()
			return float64([2]int64{first, second}[i])
		}))
	}
}

func (m *Metrics) registerPairs() {
	m.pair(&m.repair, [2]string{"repair_ahead_records", "repair_ahead_events"}, [2]string{
		"Records of the topics that a repair after the loss of the slot has still to read; 0 without one.",
		"Missing events that a repair after the loss of the slot has still to publish; 0 without one.",
	})
	m.pair(&m.snapshot, [2]string{"snapshot_published_rows", "snapshot_counted_rows"}, [2]string{
		"Rows of a running snapshot that are published, also by earlier attempts; 0 without one.",
		"Rows that a running snapshot has, as counted at its start; 0 without one.",
	})
}

func (m *Metrics) registerProgress() {
	m.registry.MustRegister(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Namespace: namespace, Name: "checkpoint_age_seconds",
			Help: "Age of the oldest acknowledged position that is not saved as a checkpoint, and so not confirmed; 0 if all are, and for a spare."},
		func() float64 {
			if age := m.checkpointAge.Load(); age != nil {
				return (*age)().Seconds()
			}
			return 0
		}))
	m.gaugeFunc("received_lsn", "Log position up to which the stream was received, in bytes.",
		func(p *progress) float64 { return float64(p.received()) })
	m.gaugeFunc("confirmed_lsn", "Log position up to which everything is acknowledged and confirmed, in bytes.",
		func(p *progress) float64 { return float64(p.confirmed()) })
	m.gaugeFunc("in_flight_events", "Events received and not yet acknowledged.",
		func(p *progress) float64 { return float64(p.inFlightEvents()) })
	m.gaugeFunc("in_flight_bytes", "Bytes of the events received and not yet acknowledged.",
		func(p *progress) float64 { return float64(p.inFlightBytes()) })
}

func (m *Metrics) gaugeFunc(name, help string, read func(*progress) float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help},
		func() float64 {
			if p := m.progress.Load(); p != nil {
				return read(p)
			}
			return 0
		}))
}

// ObserveUnconfirmed names the function that tells for how long the server has
// had something unconfirmed, in place of an earlier function; see Observe.
func (m *Metrics) ObserveUnconfirmed(oldest func() time.Duration) { m.unconfirmed.Store(&oldest) }

// ObserveStandstill names the function that tells how many sessions have failed
// at the same position, in place of an earlier function; see Observe.
func (m *Metrics) ObserveStandstill(failures func() int) { m.standstill.Store(&failures) }

// ObserveInvisible names the function that tells how long an event has waited
// until its row can be read, in place of an earlier function; see Observe.
func (m *Metrics) ObserveInvisible(waiting func() time.Duration) { m.invisible.Store(&waiting) }

// ObserveReady names the function that tells whether events get through, or
// would, in place of an earlier function; see Observe.
func (m *Metrics) ObserveReady(ready func() bool) { m.ready.Store(&ready) }

func (m *Metrics) registerHealth() {
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: "oldest_unconfirmed_seconds",
			Help: "For how long the server has had something that is not confirmed, also while it cannot be reached; 0 on a spare."},
			func() float64 {
				if oldest := m.unconfirmed.Load(); oldest != nil {
					return (*oldest)().Seconds()
				}
				return 0
			}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: "accepted_gap_seconds",
			Help: "How long ago a gap was accepted whose events may still be missing, so that retention waits; 0 without one, and on a spare."},
			func() float64 {
				if age := m.acceptedGap.Load(); age != nil {
					return (*age)().Seconds()
				}
				return 0
			}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: "invisible_seconds",
			Help: "How long an event has waited until its row can be read on the primary, by source.visibility: wait; 0 while none waits."},
			func() float64 {
				if waiting := m.invisible.Load(); waiting != nil {
					return (*waiting)().Seconds()
				}
				return 0
			}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: "standstill_failures",
			Help: "Sessions with PostgreSQL that failed one after the other before anything further was read; 0 once the stream gets on. From 3 on the instance is not ready, and names a remedy."},
			func() float64 {
				if failures := m.standstill.Load(); failures != nil {
					return float64((*failures)())
				}
				return 0
			}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: "ready",
			Help: "1 while an event that is committed now would get through, or this spare could take over; /readyz says why not."},
			func() float64 {
				if ready := m.ready.Load(); ready != nil && (*ready)() {
					return 1
				}
				return 0
			}))
}
