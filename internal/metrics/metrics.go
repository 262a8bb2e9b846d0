// Package metrics counts the connector's work, for Prometheus.
//
// Invariants:
//
//  1. The names, without the prefix cdc_outbox_, are the public contract; the
//     help texts explain each.
//  2. The hot path looks up no label per event: a delivery is counted by runs
//     of a single topic.
//  3. Pipelines of a single process do not share numbers: with several, each
//     series of a pipeline has the label pipeline.
//
// The packages of internal/pipeline see Metrics through interfaces of their
// own.
//
// Non-goals: logging, deciding what is healthy.
package metrics

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/phase"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Prefix begins the names of all our own metrics.
const Prefix = namespace + "_"

const namespace = "cdc_outbox"

// Metrics are those of a single pipeline; Set.Pipeline makes them. All methods
// may be called concurrently and none blocks for longer than a map look-up.
// They keep nothing of their arguments.
type Metrics struct {
	registry *registry

	published       *byTopic
	publishedBytes  prometheus.Counter
	publishLatency  prometheus.Histogram
	deadLettered    *prometheus.CounterVec
	skipped         *prometheus.CounterVec
	ignored         *prometheus.CounterVec
	warned          *prometheus.CounterVec
	reconnects      *prometheus.CounterVec
	connected       *prometheus.GaugeVec
	lastEvent       prometheus.Gauge
	transactions    prometheus.Counter
	split           prometheus.Counter
	capacity        prometheus.Gauge
	snapshotRunning prometheus.Gauge
	snapshotRows    prometheus.Counter
	role            *prometheus.GaugeVec
	phase           *prometheus.GaugeVec
	slot            slotGauges
	failover        failoverGauges
	retention       retentionMetrics
	quarantine      quarantineMetrics
	values          valueMetrics
	partitionsGrown *byTopic
	topicsRemade    *byTopic
	backlog         backlogGauges
	kafkaTxns       transactionMetrics
	topicsMissing   prometheus.Gauge
	topicsUnusable  prometheus.Gauge
	badCredentials  prometheus.Gauge
	throttled       prometheus.Counter
	saves           prometheus.Counter
	saveFailures    prometheus.Counter

	acked         atomic.Int64 // events
	progress      atomic.Pointer[progress]
	checkpointAge atomic.Pointer[func() time.Duration]
	unconfirmed   atomic.Pointer[func() time.Duration]
	standstill    atomic.Pointer[func() int]
	invisible     atomic.Pointer[func() time.Duration]
	repair        atomic.Pointer[func() (records, events int64)]
	acceptedGap   atomic.Pointer[func() time.Duration]
	snapshot      atomic.Pointer[func() (published, rows int64)]
	ready         atomic.Pointer[func() bool]
}

func (m *Metrics) registerEvents() {
	m.published = m.byTopic("events_published_total", "Events that the broker acknowledged.")
	m.publishedBytes = m.counter("bytes_published_total", "Keys, values and headers of the events that the broker acknowledged.")
	m.publishLatency = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Name: "publish_latency_seconds",
		Help:    "Time from a transaction's commit to the broker's acknowledgement of its event, by two machines' clocks.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
	})
	m.registry.MustRegister(m.publishLatency)
	m.lastEvent = m.gauge("last_event_timestamp_seconds", "When the last event that the broker acknowledged was committed, in Unix time: of a snapshot's row, when that began; of a polled row, what the row says; where nothing is known, when it was acknowledged. 0 before the first one of this process.")
	m.transactions = m.counter("transactions_total", "Transactions with events that were read to their end.")
	m.split = m.counter("transactions_split_total", "Transactions that were larger than sink.kafka.max_buffered_bytes, and were published in parts although sink.kafka.transaction_boundaries is on.")
	m.deadLettered = m.counterVec("events_dead_lettered_total", "Bad events written to the dead-letter topic.", "reason")
	m.skipped = m.counterVec("events_skipped_total", "Bad events dropped because errors.on_bad_event says skip.", "reason")
	m.warned = m.counterVec("events_warned_total", "Events that are published, but not as one would expect.", "warning")
	m.ignored = m.counterVec("events_ignored_total", "Changes of outbox rows that are no inserts and publish nothing.", "operation")
	for _, operation := range []string{"update", "delete", "truncate"} {
		m.ignored.WithLabelValues(operation)
	}
}

func (m *Metrics) registerConnector() {
	m.reconnects = m.counterVec("reconnects_total", "New connections after a broken one.", "side")
	for _, side := range []string{"postgres", "kafka", "checkpoint"} {
		m.reconnects.WithLabelValues(side)
	}
	m.connected = m.gaugeVec("connected", "1 while the side can be reached: postgres; kafka, which is asked every two seconds and counts as away after eight seconds without an answer; registry, 0 while an event waits for its schema; or claims, where large values are kept.", "side")
	m.Connected("postgres", false)
	m.role = m.gaugeVec("role", "1 for the present role: starting, standby (the slot is active elsewhere), active, stopping, or failed (only with pipelines: it needs an operator while others go on).", "role")
	m.Role("starting")
	m.phase = m.gaugeVec("phase", "1 for the present phase of a pipeline that reads a slot: "+phases()+".", "phase")
	m.capacity = m.gauge("in_flight_capacity_bytes", "Bytes that may be in flight: at that many, reading waits.")
	m.snapshotRunning = m.gauge("snapshot_running", "1 while the rows that were in the tables at the first start are read and published.")
	m.snapshotRows = m.counter("snapshot_rows_total", "Rows that snapshots have read.")
	m.partitionsGrown = m.byTopic("topic_partitions_grown_total", "Times that a topic was seen with more partitions: keys are placed anew.")
	m.topicsRemade = m.byTopic("topic_recreated_total", "Times that a topic in use was found deleted and created again: what was in it is gone.")
	m.topicsMissing = m.gauge("topics_missing", "Topics that events wait for and that do not exist.")
	m.topicsUnusable = m.gauge("topics_unusable", "Topics in use that cannot be written to: missing, without a leader, below min.insync.replicas, or not allowed.")
	m.badCredentials = m.gauge("credential_files_unusable", "Files of credentials that were replaced by something of no use: connections have their former contents.")
	m.throttled = m.counter("kafka_throttled_seconds_total", "Seconds that brokers made the connector wait because a quota was used up.")
	m.saves = m.counter("checkpoint_saves_total", "Checkpoints made durable.")
	m.saveFailures = m.counter("checkpoint_save_failures_total", "Checkpoints that could not be saved; they are tried again.")
}

// phases lists the phases for the help text.
func phases() string {
	var names []string
	for p := phase.Connecting; p < phase.Ended; p++ {
		names = append(names, p.String())
	}
	return strings.Join(names, ", ") + " or " + phase.Ended.String()
}

// Published counts events the broker has just acknowledged.
func (m *Metrics) Published(events []*transform.Event) {
	now := time.Now()
	var bytes int64
	for i := 0; i < len(events); {
		topic, first := events[i].Record.Topic, i
		for ; i < len(events) && events[i].Record.Topic == topic; i++ {
			bytes += events[i].Size()
			m.observeLatency(now, events[i].CommitTime)
		}
		m.published.of(topic).Add(float64(i - first))
	}
	m.acked.Add(int64(len(events)))
	m.publishedBytes.Add(float64(bytes))
	if len(events) > 0 {
		last := events[len(events)-1].CommitTime
		if last.IsZero() {
			last = now
		}
		m.lastEvent.Set(float64(last.UnixNano()) / 1e9)
	}
}

// Acked is the number of events that Published has counted.
func (m *Metrics) Acked() int64 { return m.acked.Load() }

// observeLatency leaves out events without a commit time, such as a
// non-transactional message. A commit in the future of this machine's clock
// counts as now.
func (m *Metrics) observeLatency(now, commit time.Time) {
	if !commit.IsZero() {
		m.publishLatency.Observe(max(0, now.Sub(commit)).Seconds())
	}
}

// DeadLettered counts a bad event whose dead letter is durable.
func (m *Metrics) DeadLettered(reason transform.Reason) {
	m.deadLettered.WithLabelValues(string(reason)).Inc()
}

// Skipped counts a bad event that was dropped by order of the operator.
func (m *Metrics) Skipped(reason transform.Reason) { m.skipped.WithLabelValues(string(reason)).Inc() }

// Warned counts an event that is published, but not as one would expect.
func (m *Metrics) Warned(warning transform.Warning) { m.warned.WithLabelValues(string(warning)).Inc() }

// Ignored counts a change other than an insert: update, delete or truncate.
func (m *Metrics) Ignored(operation string) { m.ignored.WithLabelValues(operation).Inc() }

// Reconnected counts a new connection after a broken connection; side is
// postgres, kafka or checkpoint (a new session, as the store failed).
func (m *Metrics) Reconnected(side string) { m.reconnects.WithLabelValues(side).Inc() }

// Transaction counts a transaction with events read to the end.
func (m *Metrics) Transaction() { m.transactions.Inc() }

// Split counts a transaction published in parts.
func (m *Metrics) Split() { m.split.Inc() }

// Capacity sets how many bytes may be in flight.
func (m *Metrics) Capacity(bytes int64) { m.capacity.Set(float64(bytes)) }

// Snapshot sets whether the tables' rows are being published.
func (m *Metrics) Snapshot(running bool) { m.snapshotRunning.Set(indicator(running)) }

// SnapshotRow counts a row a snapshot has read.
func (m *Metrics) SnapshotRow() { m.snapshotRows.Inc() }

func indicator(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// Connected sets whether a side, postgres, kafka, registry or claims, can be reached.
func (m *Metrics) Connected(side string, ok bool) {
	m.connected.WithLabelValues(side).Set(indicator(ok))
}

// Disconnected forgets the states set by Connected: nobody looks any more.
func (m *Metrics) Disconnected() { m.connected.Reset() }

// Role sets the present role: starting, standby, active, stopping or failed.
func (m *Metrics) Role(role string) {
	for _, other := range []string{"starting", "standby", "active", "stopping", "failed"} {
		m.role.WithLabelValues(other).Set(0)
	}
	m.role.WithLabelValues(role).Set(1)
}

// Phase notes a change of phase of a pipeline reading a slot.
func (m *Metrics) Phase(from, to string) {
	m.phase.WithLabelValues(from).Set(0)
	m.phase.WithLabelValues(to).Set(1)
}

// PartitionsGrown counts a topic seen with more partitions than before.
func (m *Metrics) PartitionsGrown(topic string) { m.partitionsGrown.of(topic).Inc() }

// TopicRemade counts a topic deleted and created again while in use.
func (m *Metrics) TopicRemade(topic string) { m.topicsRemade.of(topic).Inc() }

// Throttled adds to the time brokers made the connector wait.
func (m *Metrics) Throttled(wait time.Duration) { m.throttled.Add(wait.Seconds()) }

// CredentialsUnusable sets how many files of credentials are of no use.
func (m *Metrics) CredentialsUnusable(n int) { m.badCredentials.Set(float64(n)) }

// TopicsUnusable sets how many topics in use cannot be written to.
func (m *Metrics) TopicsUnusable(n int) { m.topicsUnusable.Set(float64(n)) }

// TopicsMissing sets how many topics do not exist that events wait for.
func (m *Metrics) TopicsMissing(n int) { m.topicsMissing.Set(float64(n)) }

// CheckpointSaved counts an attempt to save a checkpoint, by the outcome.
func (m *Metrics) CheckpointSaved(err error) {
	if err != nil {
		m.saveFailures.Inc()
		return
	}
	m.saves.Inc()
}

// Slot sets the server's figures of the slot: flush is the end of the server's
// log, lag the time since the commit of the oldest unconfirmed event, 0 without
// one.
func (m *Metrics) Slot(slot catalog.Slot, flush pg.LSN, lag time.Duration) {
	m.slot.set(slot, flush, lag)
}

// SlotUnknown makes Slot's values NaN.
func (m *Metrics) SlotUnknown() { m.slot.forget() }
