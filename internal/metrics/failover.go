package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// failoverGauges are about the servers a failover may go to. There are none
// while nobody looks, nor for a server that is not to have a copy of the slot.
type failoverGauges struct{ ready, lag *prometheus.GaugeVec }

func (f *failoverGauges) register(m *Metrics) {
	f.ready = m.gaugeVec("failover_ready", "1 if the standby has a copy of the slot that the connector would go on from after a failover to it, 0 if not, or if the standby does not answer; the slot's own server has no series.", "host")
	f.lag = m.gaugeVec("failover_lag_bytes", "Log that the standby's copy of the slot is behind the slot.", "host")
}

// Failover sets how a failover would find the slot, in place of former values.
func (m *Metrics) Failover(list []catalog.Candidate) {
	m.failover.ready.Reset()
	m.failover.lag.Reset()
	for _, c := range list {
		if !c.Judged() {
			continue
		}
		m.failover.ready.WithLabelValues(c.Host).Set(indicator(c.Ready()))
		if c.Behind != nil {
			m.failover.lag.WithLabelValues(c.Host).Set(float64(*c.Behind))
		}
	}
}
