package sink

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

func TestMode28MissingTopicIsWaitedFor(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "before"))
	w := newWitness()
	k, logs := newKafka(t, c.config(), WithObserver(w))
	evs := append(events("before", 3), events("later", 20)...)
	done := make(chan error, 1)
	go func() { done <- k.Deliver(deadline(t), evs, noReject(t)) }()

	if on := <-w.waiting; !on {
		t.Fatal("waiting began with false")
	}
	ascending(t, c.values(t, "before", 1), 3) // not held up
	c.createTopic(t, "later", 2)
	must.OK(t, <-done)
	if on := <-w.waiting; on {
		t.Error("waiting did not end")
	}
	ascending(t, c.values(t, "later", 2), 20)
	warnings := logs.FilterMessage("waiting for a missing topic").All()
	if len(warnings) != 1 {
		t.Fatalf("%d warnings", len(warnings))
	}
	remedy := warnings[0].ContextMap()["remedy"].(string)
	if want := "kafka-topics.sh --bootstrap-server " + c.ListenAddrs()[0] + " --create --topic 'later' --partitions 3"; remedy != want {
		t.Errorf("remedy %q, want %q", remedy, want)
	}
}

func TestMode28WaitingEndsWithTheContext(t *testing.T) {
	c := startCluster(t)
	w := newWitness()
	k, _ := newKafka(t, c.config(), WithObserver(w))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-w.waiting
		cancel()
	}()
	if err := k.Deliver(ctx, events("orders", 1), noReject(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestMode28MissingTopicIsABadEvent(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "orders"))
	cfg := c.config()
	cfg.MissingTopic = MissingTopicBadEvent
	k, _ := newKafka(t, cfg)
	evs := events("orders", 10)
	evs[3].Record.Topic = "nowhere"
	evs[5].Record.Topic = "no/topic"
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "no/topic", Err: kerr.InvalidTopicException, Count: -1})
	var got rejects
	must.OK(t, k.Deliver(deadline(t), evs, got.reject))
	want := rejects{{"id-3", transform.ReasonMissingTopic}, {"id-5", transform.ReasonIllegalTopic}}
	if !slices.Equal(got, want) {
		t.Errorf("rejected %v, want %v", got, want)
	}
	ascending(t, c.values(t, "orders", 1), 8)
}

func TestMode28MissingTopicIsCreated(t *testing.T) {
	c := startCluster(t)
	cfg := c.config()
	cfg.CreateTopics, cfg.TopicPartitions = true, 3
	cfg.TopicConfig = map[string]string{"retention.ms": "1000000000"}
	k, _ := newKafka(t, cfg)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.NotController})
	deliver(t, k, events("orders", 50))
	ascending(t, c.values(t, "orders", 3), 50)
}

func TestMode28TopicNotCreatableIsConfiguration(t *testing.T) {
	for err, remedy := range map[*kerr.Error]string{
		kerr.InvalidReplicationFactor:   "replication_factor",
		kerr.PolicyViolation:            "kafka-topics.sh",
		kerr.TopicAuthorizationFailed:   "--operation Create --topic 'orders'",
		kerr.ClusterAuthorizationFailed: "--operation Create --topic 'orders'",
	} {
		t.Run(err.Message, func(t *testing.T) {
			c := startCluster(t)
			cfg := c.config()
			cfg.CreateTopics = true
			k, _ := newKafka(t, cfg)
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: err, Count: -1})
			got := k.Deliver(deadline(t), events("orders", 5), noReject(t))
			if !errors.Is(got, err) || failure.ClassOf(got) != failure.Config {
				t.Fatalf("got %v of class %d", got, failure.ClassOf(got))
			}
			if r := failure.RemedyOf(got); !strings.Contains(r, remedy) {
				t.Errorf("remedy %q", r)
			}
		})
	}
}

func TestMode28TopicDeletedWhileRunning(t *testing.T) {
	for name, create := range map[string]bool{"created by the sink": true, "created by another": false} {
		t.Run(name, func(t *testing.T) {
			c := startCluster(t, kfake.SeedTopics(4, "orders"))
			cfg := c.config()
			cfg.CreateTopics, cfg.TopicPartitions = create, 2
			w := newWitness()
			k, _ := newKafka(t, cfg, WithObserver(w))
			evs := events("orders", 40)
			deliver(t, k, evs[:20])
			must.Get(c.admin(t).DeleteTopics(deadline(t), "orders"))(t)
			if !create {
				go func() {
					<-w.waiting
					c.createTopic(t, "orders", 2)
				}()
			}
			deliver(t, k, evs[20:])
			ascending(t, c.values(t, "orders", 2), 20)
			if len(w.partitions) > 0 {
				t.Errorf("the new topic inherits the old one's partitions: %v", <-w.partitions)
			}
		})
	}
}

func TestMode34PartitionsGrow(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(2, "orders"))
	w := newWitness()
	k, logs := newKafka(t, c.config(), WithObserver(w))
	deliver := func(evs ...*transform.Event) {
		t.Helper()
		deliver(t, k, evs)
	}
	deliver(events("orders", 10)...)
	c.growTopic(t, "orders", 5)
	deliver(event("orders", "", 4, 10)) // asks for a new partition: looked up at once
	if got := <-w.partitions; got != [2]int32{2, 5} {
		t.Errorf("observed %v", got)
	}
	if n := logs.FilterMessage("topic has another number of partitions, keys move").Len(); n != 1 {
		t.Errorf("%d warnings", n)
	}

	c.growTopic(t, "orders", 6)
	k.client.ForceMetadataRefresh() // as the client does every five minutes
	await.Until(t, "client knows the partition", func() bool {
		leader, _, _ := k.client.PartitionLeader("orders", 5)
		return leader >= 0
	})
	deliver(event("orders", "a", transform.PartitionByKey, 11)) // the client tells us
	deliver(event("orders", "a", transform.PartitionByKey, 12))
	if got := <-w.partitions; got != [2]int32{5, 6} {
		t.Errorf("observed %v", got)
	}
	if got := c.values(t, "orders", 6)[4]; !slices.Contains(got, "10") {
		t.Errorf("new partition has %v", got)
	}
}

// A broker just started, or without news of a new topic, knows none. The event is
// not to blame.
func TestMode28BrokerThatDoesNotKnowTheTopicYet(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "orders"), kfake.SeedTopics(1, "dead"))
	cfg := c.config()
	cfg.MissingTopic = MissingTopicBadEvent
	k, _ := newKafka(t, cfg, WithDeadLetterTopic("dead"))
	for _, topic := range []string{"orders", "dead"} {
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: topic, Err: kerr.UnknownTopicOrPartition, Count: 3})
	}
	evs := events("orders", 10)
	deliver(t, k, evs)
	ascending(t, c.values(t, "orders", 1), 10)
	bad := &transform.BadEvent{Reason: transform.ReasonMissingTopic, Err: errors.New("made up")}
	must.OK(t, k.DeadLetter(deadline(t), evs[0], bad))
}

func TestAbsentRemembersTheLastNames(t *testing.T) {
	var a absent
	for n := range 100 * absentTopics {
		name := strconv.Itoa(n)
		if a.has(name) {
			t.Fatalf("%s was never added", name)
		}
		a.add(name)
		if !a.has(name) || !a.has("used all the time") && n > 0 {
			t.Fatalf("forgot %s or the one that is used all the time", name)
		}
		a.add("used all the time")
		if size := len(a.young) + len(a.old); size > 2*absentTopics {
			t.Fatalf("remembers %d names", size)
		}
	}
	last := strconv.Itoa(100*absentTopics - absentTopics/2)
	if !a.has(last) {
		t.Errorf("forgot %s", last)
	}
	a.remove(last)
	if a.has(last) {
		t.Errorf("remembers %s, which exists", last)
	}
}
