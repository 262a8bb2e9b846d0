package transform

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Failure mode 64: no event goes to the connectors' own topics, whichever way the
// name comes about.
func TestInternalTopicsTakeNoEvents(t *testing.T) {
	internal := []string{"cdc-outbox.checkpoints", "mine"}
	for _, route := range []RouteOptions{
		{Regex: "(?<v>.*)", Topic: "${v}"},
		{Regex: "no-match", Topic: "outbox"},
		{Regex: "(?<v>a)?(?<w>.*)", Topic: "${v}${w}"},
	} {
		route.Internal = internal
		topics := must.Get(newTopics(route))(t)
		for name, legal := range map[string]bool{
			"cdc-outbox.checkpoints": false, "cdc-outbox.checkpoints.app-slot": false, "mine": false, "mine.app-slot": false,
			"mines": true, "cdc-outbox.checkpoints-of-ours": true, "cdc-outbox": true, "outbox.event.mine": true,
		} {
			for range 2 { // the second time by the cache
				if _, err := topics.lookup([]byte(name)); (err == nil) != legal {
					t.Errorf("%s to %s: %q: %v", route.Regex, route.Topic, name, err)
				}
			}
		}
	}
}

// Where the configuration shows it, it is refused.
func TestFixedRouteToAnInternalTopic(t *testing.T) {
	for topic, fine := range map[string]bool{
		"cdc-outbox.checkpoints": false, "cdc-outbox.checkpoints.x": false, "cdc-outbox.checkpoints.${v}": false,
		"cdc-outbox.checkpoints${v}": true, "cdc-outbox.${v}": true, "orders": true,
	} {
		_, err := newTopics(RouteOptions{Regex: "(?<v>.*)", Topic: topic, Internal: []string{"cdc-outbox.checkpoints"}})
		if (err == nil) != fine || err != nil && (failure.ClassOf(err) != failure.Config || failure.RemedyOf(err) == "") {
			t.Errorf("%s: %v", topic, err)
		}
	}
}
