package sink

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// acknowledgeAt has the cluster acknowledge all further records of the topic at
// the offset, as a leader with a log that ends there.
func (c *cluster) acknowledgeAt(topic string, offset int64) {
	id := c.TopicInfo(topic).TopicID
	c.ControlKey(int16(produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		asked := req.(*kmsg.ProduceRequest)
		if !slices.ContainsFunc(asked.Topics, func(t kmsg.ProduceRequestTopic) bool { return t.TopicID == id }) {
			return nil, nil, false
		}
		resp := asked.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range asked.Topics {
			answer := kmsg.NewProduceResponseTopic()
			answer.TopicID = t.TopicID
			for _, p := range t.Partitions {
				part := kmsg.NewProduceResponseTopicPartition()
				part.Partition, part.BaseOffset = p.Partition, offset
				answer.Partitions = append(answer.Partitions, part)
			}
			resp.Topics = append(resp.Topics, answer)
		}
		return resp, nil, true
	})
}

// remake deletes the topic and creates another of the name.
func (c *cluster) remake(t *testing.T, topic string, partitions int32) {
	t.Helper()
	must.Get(c.admin(t).DeleteTopic(deadline(t), topic))(t)
	c.createTopic(t, topic, partitions)
}

// wantLost fails unless err is a loss saying where events may be missing.
func wantLost(t *testing.T, err error, last int) {
	t.Helper()
	if failure.ClassOf(err) != failure.Loss {
		t.Fatalf("got %v of class %d, want a loss", err, failure.ClassOf(err))
	}
	for _, want := range []string{`"orders"`, "partition 0", fmt.Sprintf("up to offset %d", last), "event id-10", "at offset 4", fmt.Sprintf("those at offsets 4 to %d", last), "unclean leader election", "disk was put back"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if r := failure.RemedyOf(err); !strings.Contains(r, "--partition 0 --offset 3") || !strings.Contains(r, "min.insync.replicas") {
		t.Errorf("remedy %q", r)
	}
}

// Brokers have lost acknowledged records, and their sequence numbers do not tell.
func TestAckAtALowerOffsetIsALoss(t *testing.T) {
	t.Run("at least once", func(t *testing.T) {
		c := startCluster(t, kfake.SeedTopics(1, "orders"))
		k, _ := newKafka(t, c.config())
		evs := events("orders", 11)
		deliver(t, k, evs[:10])
		c.acknowledgeAt("orders", 4)
		wantLost(t, k.Deliver(deadline(t), evs[10:], noReject(t)), 9)
	})
	t.Run("exactly once", func(t *testing.T) {
		c, x := startTransactions(t, 1)
		c.createTopic(t, "orders", 1)
		evs := events("orders", 11)
		must.Get(x.Transact(deadline(t), entriesOf(evs[:10]), mark("1")))(t)
		c.acknowledgeAt("orders", 4)
		_, err := x.Transact(deadline(t), entriesOf(evs[10:]), mark("2"))
		wantLost(t, err, 10) // the marker of the commit
		c.wantCommitted(t, marks, "1")
	})
}

// Records removed from the start of a log are no loss, nor are the offsets of
// markers and of aborted records.
func TestAckBehindARemovedStartIsNoLoss(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "orders"))
	k, _ := newKafka(t, c.config())
	evs := events("orders", 30)
	for n := range 3 {
		deliver(t, k, evs[10*n:10*n+10])
		var start kadm.Offsets
		start.AddOffset("orders", 0, int64(10*n+10), -1)
		must.Get(c.admin(t).DeleteRecords(deadline(t), start))(t)
	}
}

func TestTopicMadeAnewUnderLoadIsTold(t *testing.T) {
	w := newWitness()
	told := WithObserver(w)
	for name, write := range map[string]func(*testing.T, *cluster) (func([]*transform.Event) error, func() int){
		"at least once": func(t *testing.T, c *cluster) (func([]*transform.Event) error, func() int) {
			k, logs := newKafka(t, c.config(), told)
			return func(evs []*transform.Event) error { return k.Deliver(deadline(t), evs, noReject(t)) },
				func() int { return logs.FilterMessageSnippet("deleted and created again").Len() }
		},
		"exactly once": func(t *testing.T, c *cluster) (func([]*transform.Event) error, func() int) {
			c.createTopic(t, marks, 1)
			x := must.Get(NewTransactions(c.config(), "tx", told))(t)
			t.Cleanup(x.Close)
			must.OK(t, x.Claim(deadline(t)))
			return func(evs []*transform.Event) error {
				_, err := x.Transact(deadline(t), entriesOf(evs), mark("m"))
				return err
			}, func() int { return 1 }
		},
	} {
		t.Run(name, func(t *testing.T) {
			w.remade = nil
			c := startCluster(t, kfake.SeedTopics(2, "orders"))
			write, logged := write(t, c)
			evs := events("orders", 40)
			must.OK(t, write(evs[:20]))
			c.remake(t, "orders", 2)
			must.OK(t, write(evs[20:]))
			if len(w.remade) != 1 || w.remade[0] != "orders" || logged() != 1 {
				t.Errorf("told of %v, %d lines in the log", w.remade, logged())
			}
		})
	}
}

// A broker going by names takes records for the new topic as if nothing had
// happened.
func TestTopicMadeAnewIsKnownByItsID(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "orders"))
	k, _ := newKafka(t, c.config())
	topic := must.Get(k.resolve(deadline(t), "orders", missingFail))(t)
	topic.acked.id = topicID{1}
	topic.acked.raise(0, end{offset: 10})
	round := []placed{{Event: event("orders", "a", 0, 1)}}
	must.OK(t, k.believe(t.Context(), round, k.tally(round)))
	k.raise(round, k.tally(round), 0)
	if topic.acked.id != topicID(c.TopicInfo("orders").TopicID) || topic.acked.end(0) != 1 {
		t.Errorf("the topic is %v, its partition ends at %d", topic.acked.id, topic.acked.end(0))
	}
	topic.acked.raise(0, end{offset: 10})
	if err := k.believe(t.Context(), round, k.tally(round)); failure.ClassOf(err) != failure.Loss {
		t.Errorf("got %v", err)
	}
}

// A broker without news of the new topic yet tells of the former topic.
func TestTopicMadeAnewOfWhichABrokerHasNotHeard(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "orders"))
	k, _ := newKafka(t, c.config())
	topic := must.Get(k.resolve(deadline(t), "orders", missingFail))(t)
	topic.acked.id = topicID{1}
	topic.acked.raise(0, end{offset: 10})
	answers := 0
	c.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if asked := req.(*kmsg.MetadataRequest); len(asked.Topics) != 1 || answers == 3 {
			return nil, nil, false
		}
		answers++
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		stale := kmsg.NewMetadataResponseTopic()
		stale.Topic, stale.TopicID = kmsg.StringPtr("orders"), topicID{1}
		stale.Partitions = []kmsg.MetadataResponseTopicPartition{kmsg.NewMetadataResponseTopicPartition()}
		resp.Topics = append(resp.Topics, stale)
		return resp, nil, true
	})
	round := []placed{{Event: event("orders", "a", 0, 1)}}
	must.OK(t, k.believe(deadline(t), round, k.tally(round)))
	if topic.acked.id != topicID(c.TopicInfo("orders").TopicID) {
		t.Errorf("the topic is %v", topic.acked.id)
	}
}
