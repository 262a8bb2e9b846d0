package page

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
)

// reading has a pipeline's values in /metrics at a single moment.
type reading struct {
	// values are gauges and counters by name without the prefix; a metric with
	// labels is added up.
	values  map[string]float64
	topics  map[string]float64 // events published
	latency []*dto.Bucket
	// measured is the number of events in latency: not all have a commit's time.
	measured uint64
}

// read gathers the metrics of all pipelines, by name.
func read(from prometheus.Gatherer) map[string]*reading {
	families, _ := from.Gather() // a partial answer counts; /metrics shows the error
	pipelines := map[string]*reading{}
	for _, family := range families {
		name := strings.TrimPrefix(family.GetName(), metrics.Prefix)
		for _, m := range family.GetMetric() {
			r := pipelines[label(m, metrics.PipelineLabel)]
			if r == nil {
				r = &reading{values: map[string]float64{}, topics: map[string]float64{}}
				pipelines[label(m, metrics.PipelineLabel)] = r
			}
			r.add(name, m)
		}
	}
	return pipelines
}

func (r *reading) add(name string, m *dto.Metric) {
	if h := m.GetHistogram(); h != nil {
		if name == "publish_latency_seconds" {
			r.latency, r.measured = h.GetBucket(), h.GetSampleCount()
		}
		return
	}
	value := m.GetCounter().GetValue() + m.GetGauge().GetValue() // either is there
	r.values[name] += value
	if name == "events_published_total" {
		r.topics[label(m, "topic")] = value
	}
}

// mostTopics bounds the topics in an update: there may be thousands.
const mostTopics = 3

// topics are how many events were published, in all, to the topics with the most,
// and to the others together.
type topics struct {
	Busiest []topic `json:"busiest"`
	Others  int     `json:"others"`
	Events  float64 `json:"events"` // of the others
}

type topic struct {
	Name   string  `json:"name"`
	Events float64 `json:"events"`
}

func (r *reading) busiest() (t topics) {
	for name, n := range r.topics {
		t.Busiest = append(t.Busiest, topic{name, n})
	}
	slices.SortFunc(t.Busiest, func(a, b topic) int { return cmp.Or(cmp.Compare(b.Events, a.Events), cmp.Compare(a.Name, b.Name)) })
	if len(t.Busiest) > mostTopics {
		for _, other := range t.Busiest[mostTopics-1:] {
			t.Others++
			t.Events += other.Events
		}
		t.Busiest = t.Busiest[:mostTopics-1]
	}
	return t
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// The columns of a sample, in the order of the page's script.
const (
	eventsPerSecond = iota
	bytesPerSecond
	transactionsPerSecond
	walPerSecond // read from the slot
	lagSeconds
	lagBytes
	retainedBytes
	safeBytes
	latency50
	latency99
	inFlightBytes
	checkpointAge
	columns
)

// sample is a point of all charts; NaN is not known.
type sample struct {
	at     float64 // Unix time
	values [columns]float32
}

// since makes a sample of two readings, so many seconds apart.
func (r *reading) since(before *reading, seconds float64) (v [columns]float32) {
	rate := func(name string) float32 {
		if before == nil || seconds <= 0 {
			return nan
		}
		// A counter that fell has begun anew: so has the position of another
		// log.
		return float32(max(0, r.values[name]-before.values[name]) / seconds)
	}
	gauge := func(names ...string) float32 {
		for _, name := range names {
			if value, ok := r.values[name]; ok {
				return float32(value)
			}
		}
		return nan
	}
	v[eventsPerSecond] = rate("events_published_total")
	v[bytesPerSecond] = rate("bytes_published_total")
	v[transactionsPerSecond] = rate("transactions_total")
	v[walPerSecond] = rate("received_lsn")
	if before != nil && before.values["received_lsn"] == 0 {
		v[walPerSecond] = nan // the position was not known yet
	}
	v[lagSeconds] = gauge("oldest_unpublished_seconds", "slot_lag_seconds")
	v[lagBytes] = gauge("slot_lag_bytes")
	v[retainedBytes] = gauge("slot_retained_bytes")
	v[safeBytes] = gauge("slot_safe_wal_bytes")
	v[inFlightBytes] = gauge("in_flight_bytes")
	v[checkpointAge] = gauge("checkpoint_age_seconds")
	v[latency50], v[latency99] = r.quantile(before, .5), r.quantile(before, .99)
	return v
}

var nan = float32(math.NaN())

// quantile estimates the latency a share of the events since before had, as
// Prometheus' histogram_quantile does.
func (r *reading) quantile(before *reading, share float64) float32 {
	if before == nil || len(before.latency) != len(r.latency) || len(r.latency) == 0 {
		return nan
	}
	count := func(i int) float64 {
		return float64(r.latency[i].GetCumulativeCount()) - float64(before.latency[i].GetCumulativeCount())
	}
	total := float64(r.measured) - float64(before.measured)
	if total <= 0 {
		return nan
	}
	rank, below, lowest := share*total, 0., 0.
	for i, bucket := range r.latency {
		if n := count(i); n >= rank && n > below {
			return float32(lowest + (bucket.GetUpperBound()-lowest)*(rank-below)/(n-below))
		}
		below, lowest = count(i), bucket.GetUpperBound()
	}
	return float32(lowest) // beyond the last bucket
}
