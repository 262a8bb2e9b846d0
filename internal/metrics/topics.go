package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// mostTopics bounds the series of a byTopic: a route may give each aggregate a
// separate topic. Further topics are counted together, under a label that no
// topic can have as its name.
const (
	mostTopics  = 1000
	otherTopics = "(others)"
)

// byTopic is a counter for each topic.
type byTopic struct {
	vec *prometheus.CounterVec

	mu    sync.Mutex
	known map[string]prometheus.Counter
}

func (m *Metrics) byTopic(name, help string) *byTopic {
	return &byTopic{vec: m.counterVec(name, help, "topic"), known: map[string]prometheus.Counter{}}
}

// of returns the topic's counter.
func (b *byTopic) of(topic string) prometheus.Counter {
	b.mu.Lock()
	defer b.mu.Unlock()
	counter, ok := b.known[topic]
	switch {
	case ok:
		return counter
	case len(b.known) >= mostTopics:
		return b.vec.WithLabelValues(otherTopics)
	}
	counter = b.vec.WithLabelValues(topic)
	b.known[topic] = counter
	return counter
}
