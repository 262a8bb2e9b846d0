package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// quarantineMetrics are about parked events.
type quarantineMetrics struct {
	parked *prometheus.CounterVec
	now    atomic.Pointer[func() (events, keys int64)]
}

func (q *quarantineMetrics) register(m *Metrics) {
	q.parked = m.counterVec("events_quarantined_total", "Events parked in the quarantine: bad ones by their reason, and, with the reason behind, good ones behind them.", "reason")
	read := func() (events, keys int64) {
		if now := q.now.Load(); now != nil && *now != nil {
			return (*now)()
		}
		return 0, 0
	}
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: "quarantine_events",
			Help: "Events in the quarantine, as far as this instance reads the slot."},
			func() float64 { events, _ := read(); return float64(events) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: "quarantine_keys",
			Help: "Keys in the quarantine, which do not flow; an event without a key counts as one."},
			func() float64 { _, keys := read(); return float64(keys) }))
}

// Quarantined counts an event parked.
func (m *Metrics) Quarantined(reason transform.Reason) {
	m.quarantine.parked.WithLabelValues(string(reason)).Inc()
}

// ObserveQuarantine names the function that tells how much is parked, in place of an earlier
// function; nil: nothing ever is.
func (m *Metrics) ObserveQuarantine(now func() (events, keys int64)) { m.quarantine.now.Store(&now) }
