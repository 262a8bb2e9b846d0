package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-outbox/cdc-outbox/internal/fleet/placement"
)

// Fleet are the metrics of a process in a fleet.
type Fleet struct {
	joined, assigned, waiting prometheus.Gauge
	moves                     *prometheus.CounterVec
}

// Fleet registers the metrics of a fleet, once.
func (s *Set) Fleet() *Fleet {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
		s.process.MustRegister(g)
		return g
	}
	f := &Fleet{
		joined:   gauge("fleet_joined", "1 while this process is a member of the fleet. Otherwise it runs no pipeline."),
		assigned: gauge("fleet_assigned_pipelines", "Pipelines that this member of the fleet has to run."),
		waiting:  gauge("fleet_waiting_pipelines", "Pipelines of the whole fleet that no member has to run, by the last decision: they are moving, or no member can take them."),
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "fleet_moves_total",
			Help: "Moves of pipelines that this member has decided as the leader of the fleet, by reason."}, []string{"reason"}),
	}
	s.process.MustRegister(f.moves)
	for _, reason := range []placement.Reason{placement.Drain, placement.Rollout, placement.Balance, placement.Zone, placement.Gone} {
		f.moves.WithLabelValues(string(reason))
	}
	return f
}

// FleetJoined sets whether the process is a member.
func (f *Fleet) FleetJoined(is bool) { f.joined.Set(indicator(is)) }

// FleetAssigned sets how many pipelines the member has, and how many of the fleet nobody has.
func (f *Fleet) FleetAssigned(run, waiting int) {
	f.assigned.Set(float64(run))
	f.waiting.Set(float64(waiting))
}

// FleetMoved counts a decision of the member.
func (f *Fleet) FleetMoved(reason string) { f.moves.WithLabelValues(reason).Inc() }
