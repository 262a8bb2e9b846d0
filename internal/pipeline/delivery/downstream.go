package delivery

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/tracing"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// StuckAfter is how long a delivery may take in a ready instance.
const StuckAfter = 10 * time.Second

// DownstreamMetrics are told of changes of a Downstream; see Metrics.
type DownstreamMetrics interface {
	Connected(side string, ok bool)
	TopicsMissing(n int)
	TopicsUnusable(n int)
	CredentialsUnusable(n int)
}

// Downstream is the state of Kafka, for both sources. A Downstream outlives pipelines
// started anew, and is safe for concurrent use.
type Downstream struct {
	// Create returns the command for the creation of a topic, and Recent takes
	// everything delivered. Both are optional, and set before a pipeline uses the
	// Downstream.
	Create func(topic string) string
	Recent *Recent
	Spans  *tracing.Source // of the pipeline's events; nil for none

	metrics DownstreamMetrics

	mu      sync.Mutex
	brokers string   // why they do not answer; "" if they do
	remedy  string   // of brokers
	refused string   // why they take no records; "" if they do
	allow   string   // remedy of refused
	schema  error    // why the delivery waits for a schema; nil: it does not
	unkept  error    // why the delivery waits for the claim store; nil: it does not
	values  error    // why the claim store would take no value; nil: it would
	missing []string // topics the delivery waits for
	topics  []error  // why topics in use cannot be written to
	files   []error  // why files of credentials are of no use

	throttled time.Time     // when a quota last made the connector wait
	throttle  time.Duration // for how long
}

// Status is the common part of /status.
type Status struct {
	Role           string    `json:"role"`
	RoleSince      time.Time `json:"role_since"`
	InFlightEvents int64     `json:"in_flight_events"`
	InFlightBytes  int64     `json:"in_flight_bytes"`
	MissingTopics  []string  `json:"missing_topics,omitempty"`
	PostgresError  string    `json:"postgres_error,omitempty"`
	KafkaError     string    `json:"kafka_error,omitempty"`
	SchemaError    string    `json:"schema_error,omitempty"` // why the delivery waits for a schema
	ClaimError     string    `json:"claim_error,omitempty"`  // why the claim store takes no values
	TopicErrors    []string  `json:"topic_errors,omitempty"`
	// CredentialErrors are why files of credentials are of no use; their former contents are
	// in use.
	CredentialErrors []string `json:"credential_errors,omitempty"`
	UnackedSeconds   float64  `json:"unacked_seconds,omitempty"`
	// LastEvent is nil before the first event of the process.
	LastEvent *Last `json:"last_event,omitempty"`
}

// Complete adds the state of Kafka.
func (d *Downstream) Complete(s Status) Status {
	s.MissingTopics, s.KafkaError = d.MissingTopics(), d.Trouble()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.schema != nil {
		s.SchemaError = d.schema.Error()
	}
	if err := cmp.Or(d.unkept, d.values); err != nil {
		s.ClaimError = err.Error()
	}
	for _, err := range d.topics {
		s.TopicErrors = append(s.TopicErrors, err.Error())
	}
	for _, err := range d.files {
		s.CredentialErrors = append(s.CredentialErrors, err.Error())
	}
	return s
}

// NewDownstream returns a Downstream without trouble.
func NewDownstream(m DownstreamMetrics) *Downstream { return &Downstream{metrics: m} }

// Brokers notes that Kafka answers (nil), or why it does not.
func (d *Downstream) Brokers(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.brokers, d.remedy = "", ""
	if err != nil {
		d.brokers, d.remedy = err.Error(), failure.RemedyOf(err)
	}
	d.metrics.Connected("kafka", err == nil)
}

// Refused notes why brokers refuse records, or, with "", that they take them again.
func (d *Downstream) Refused(reason, remedy string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refused, d.allow = reason, remedy
}

// SchemaWaiting notes why the delivery waits for a schema, or, with nil, that it goes on.
func (d *Downstream) SchemaWaiting(reason error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.schema = reason
	d.metrics.Connected("registry", reason == nil)
}

// ValuesWaiting notes why the delivery waits for the claim store, or, with nil, that it goes on.
func (d *Downstream) ValuesWaiting(reason error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unkept = reason
	d.claims()
}

// Values notes why the claim store would take no value, or, with nil, that it would.
func (d *Downstream) Values(reason error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.values = reason
	d.claims()
}

// claims tells the metrics of the claim store. The caller holds mu.
func (d *Downstream) claims() { d.metrics.Connected("claims", d.unkept == nil && d.values == nil) }

// TopicWaiting notes that the delivery waits for a topic, or waits no more.
func (d *Downstream) TopicWaiting(topic string, missing bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.missing = slices.DeleteFunc(d.missing, func(t string) bool { return t == topic })
	if missing {
		d.missing = append(d.missing, topic)
	}
	d.metrics.TopicsMissing(len(d.missing))
}

// Topics notes why topics in use cannot be written to, also while no event is delivered.
func (d *Downstream) Topics(troubles []error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.topics = troubles
	d.metrics.TopicsUnusable(len(troubles))
}

// Credentials notes why files of credentials are of no use. Events get through: connections
// have the former contents.
func (d *Downstream) Credentials(troubles []error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files = troubles
	d.metrics.CredentialsUnusable(len(troubles))
}

// throttleCounts is how long a wait for a quota may be the reason of another wait.
const throttleCounts = time.Minute

// Throttled notes that a quota makes the connector wait.
func (d *Downstream) Throttled(wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.throttled, d.throttle = time.Now(), wait
}

// SinkOpened forgets the topics a former sink waited for.
func (d *Downstream) SinkOpened() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.schema != nil {
		d.schema = nil
		d.metrics.Connected("registry", true)
	}
	if d.unkept != nil {
		d.unkept = nil
		d.claims()
	}
	d.missing, d.refused, d.allow = nil, "", ""
	d.metrics.TopicsMissing(0)
}

// MissingTopics lists the topics the delivery waits for.
func (d *Downstream) MissingTopics() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.missing)
}

// Trouble is why brokers do not answer, or take no records; "" if they do.
func (d *Downstream) Trouble() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return cmp.Or(d.brokers, d.refused)
}

// Unready lists why events do not get through. stuck is how long deliveries have not
// been acknowledged, after how long they may take.
func (d *Downstream) Unready(stuck, after time.Duration) (reasons []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.brokers != "" {
		reasons = append(reasons, "Kafka: "+d.brokers)
	}
	if d.refused != "" {
		reasons = append(reasons, "Kafka: "+d.refused)
	}
	if stuck > after {
		reasons = append(reasons, fmt.Sprintf("no delivery has been acknowledged for %s", stuck.Round(time.Second)))
		if time.Since(d.throttled) < max(throttleCounts, stuck) {
			reasons = append(reasons, fmt.Sprintf("Kafka throttles the connector, by %s at a time: a quota is used up", d.throttle))
		}
	}
	if d.schema != nil {
		reasons = append(reasons, "an event waits for its schema: "+d.schema.Error())
	}
	if err := cmp.Or(d.unkept, d.values); err != nil {
		reasons = append(reasons, "large values cannot be kept: "+err.Error())
	}
	for _, t := range d.missing {
		reasons = append(reasons, sink.MissingTopicText+t)
	}
	for _, err := range d.topics {
		if !slices.Contains(reasons, err.Error()) {
			reasons = append(reasons, err.Error())
		}
	}
	return reasons
}

// Remedies are for the reasons of Unready, as far as known.
func (d *Downstream) Remedies() (remedies []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.remedy != "" {
		remedies = append(remedies, d.remedy)
	}
	if d.allow != "" {
		remedies = append(remedies, d.allow)
	}
	if remedy := failure.RemedyOf(d.schema); remedy != "" {
		remedies = append(remedies, remedy)
	}
	if remedy := failure.RemedyOf(cmp.Or(d.unkept, d.values)); remedy != "" {
		remedies = append(remedies, remedy)
	}
	for _, t := range d.missing {
		if d.Create != nil {
			remedies = append(remedies, d.Create(t))
		}
	}
	for _, err := range d.topics {
		if missing := strings.TrimPrefix(err.Error(), sink.MissingTopicText); !slices.Contains(d.missing, missing) {
			remedies = append(remedies, failure.RemedyOf(err))
		}
	}
	return remedies
}
