package sink

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// A route.topic leading to no topic of Kafka is found before an event goes
// there.
func TestRoutes(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "outbox.event.order", "orders.placed"))
	p := must.Get(NewProbe(c.config(), UsualPace))(t)
	defer p.Close()
	for name, tt := range map[string]struct {
		template string
		written  []string
		reason   string
	}{
		"as before":                   {"outbox.event.${routedByValue}", []string{"outbox.event.gone", "outbox.event.order"}, ""},
		"another, which is there":     {"$1.placed", []string{"outbox.event.order"}, ""},
		"another, which is not there": {"outbox.evnt.${routedByValue}", []string{"outbox.event.order"}, "outbox.evnt.${routedByValue}, leads to; events have gone to outbox.event.order"},
		"a dot is a dot":              {"outbox.event_$1", []string{"outbox.event.order"}, "outbox.event_$1"},
		"nothing was written":         {"outbox.evnt.${routedByValue}", nil, ""},
		"another cluster":             {"outbox.event.${routedByValue}", []string{"outbox.event.a", "outbox.event.b"}, "none of the topics that events have gone to: outbox.event.a, outbox.event.b"},
	} {
		t.Run(name, func(t *testing.T) {
			ends := checkpoint.Ends{}
			for _, topic := range tt.written {
				ends[topic] = checkpoint.TopicEnds{To: []int64{1}}
			}
			err := p.Routes(t.Context(), routeTo(tt.template), ends)
			if tt.reason == "" && err != nil || tt.reason != "" && (err == nil || !strings.Contains(err.Error(), tt.reason) || failure.RemedyOf(err) == "") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// routeTo is a route with the usual expression.
func routeTo(template string) transform.RouteOptions {
	return transform.RouteOptions{Regex: "(?<routedByValue>.*)", Topic: template}
}
