package sink

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// The first events of many topics take a few questions and rounds, not some for each
// topic. Events of a topic stay in order, and a missing topic is the fault of its own
// events only.
func TestFirstEventsOfManyTopics(t *testing.T) {
	const topics = 200
	names := make([]string, topics)
	for n := range names {
		names[n] = fmt.Sprintf("t%d", n)
	}
	for how, deliver := range map[string]func(*cluster, []*transform.Event) (rejects, error){
		DeliveryAtLeastOnce: func(c *cluster, evs []*transform.Event) (r rejects, err error) {
			cfg := c.config()
			cfg.MissingTopic = MissingTopicBadEvent
			k, _ := newKafka(t, cfg)
			err = k.Deliver(deadline(t), evs, r.reject)
			return r, err
		},
		DeliveryExactlyOnce: func(c *cluster, evs []*transform.Event) (r rejects, err error) {
			cfg := c.config()
			cfg.MissingTopic = MissingTopicBadEvent
			x := must.Get(NewTransactions(cfg, "tx"))(t)
			defer x.Close()
			must.OK(t, x.Claim(deadline(t)))
			entries := entriesOf(evs)
			refused, err := x.Transact(deadline(t), entries, mark("m"))
			for _, refusal := range refused {
				entries = slices.Delete(entries, refusal.Index, refusal.Index+1)
				r = append(r, rejection{string(evs[refusal.Index].ID), refusal.Bad.Reason})
			}
			if err == nil {
				_, err = x.Transact(deadline(t), entries, mark("m"))
			}
			return r, err
		},
	} {
		t.Run(how, func(t *testing.T) {
			c := startCluster(t, kfake.SeedTopics(1, append([]string{marks}, names...)...))
			var asked atomic.Int32
			for _, key := range []kmsg.Key{kmsg.Metadata, kmsg.ListOffsets} {
				c.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
					c.KeepControl()
					asked.Add(1)
					return nil, nil, false
				})
			}
			var evs []*transform.Event
			for pass := range 3 {
				for _, name := range names {
					evs = append(evs, event(name, "k", transform.PartitionByKey, pass))
				}
				if pass == 0 {
					evs = append(evs, event("missing", "k", transform.PartitionByKey, 0))
				}
			}
			missing := string(evs[topics].ID)
			rejected, err := deliver(c, evs)
			must.OK(t, err)
			if len(rejected) != 1 || rejected[0] != (rejection{missing, transform.ReasonMissingTopic}) {
				t.Errorf("rejected %v", rejected)
			}
			if n := asked.Load(); n > topics/5 {
				t.Errorf("%d questions about %d topics", n, topics)
			}
			for _, name := range []string{names[0], names[topics-1]} {
				if got := c.committed(t, name); !slices.Equal(got, []string{"0", "1", "2"}) {
					t.Errorf("%s has %q", name, got)
				}
			}
		})
	}
}
