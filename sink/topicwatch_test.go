package sink

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// least answers min.insync.replicas of each topic; 0 refuses.
type least int

func (l least) Request(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeConfigsResponse()
	for _, r := range req.(*kmsg.DescribeConfigsRequest).Resources {
		answer, value := kmsg.NewDescribeConfigsResponseResource(), fmt.Sprint(int(l))
		answer.ResourceName = r.ResourceName
		if l > 0 {
			answer.Configs = []kmsg.DescribeConfigsResponseResourceConfig{{Name: "min.insync.replicas", Value: &value}}
		}
		resp.Resources = append(resp.Resources, answer)
	}
	return resp, nil
}

// described is a topic; each partition has a leader and replicas, some of them in
// sync.
func described(code *kerr.Error, allowed int32, partitions ...[3]int) kmsg.MetadataResponseTopic {
	name, t := "orders", kmsg.NewMetadataResponseTopic()
	t.Topic, t.AuthorizedOperations = &name, allowed
	if code != nil {
		t.ErrorCode = code.Code
	}
	for i, p := range partitions {
		at := kmsg.NewMetadataResponseTopicPartition()
		at.Partition, at.Leader = int32(i), int32(p[0])
		at.Replicas, at.ISR = make([]int32, p[1]), make([]int32, p[2])
		t.Partitions = append(t.Partitions, at)
	}
	return t
}

func TestMode72TopicsInUse(t *testing.T) {
	const all, describe, writeOnly = -1 << 31, 1 << kmsg.ACLOperationDescribe, 1<<kmsg.ACLOperationDescribe | 1<<kmsg.ACLOperationWrite
	for name, tc := range map[string]struct {
		use    Use
		topic  kmsg.MetadataResponseTopic
		least  least
		reason string
		remedy string
	}{
		"sound":                    {topic: described(nil, all, [3]int{1, 3, 3}), least: 2},
		"gone":                     {topic: described(kerr.UnknownTopicOrPartition, all), reason: "topic does not exist: orders", remedy: "--create --topic 'orders'"},
		"gone, to be created":      {use: Use{Optional: true}, topic: described(kerr.UnknownTopicOrPartition, all)},
		"illegal":                  {topic: described(kerr.InvalidTopicException, all)},
		"no leader":                {topic: described(nil, all, [3]int{1, 3, 3}, [3]int{-1, 1, 1}), least: 2, reason: `"orders" has no leader for partitions [1]`, remedy: "--describe --topic 'orders'"},
		"too few in sync":          {topic: described(nil, all, [3]int{1, 3, 3}, [3]int{1, 3, 1}), least: 2, reason: "1 replicas in sync of partitions [1], but min.insync.replicas is 2", remedy: "--describe"},
		"enough in sync":           {topic: described(nil, all, [3]int{1, 3, 2}), least: 2},
		"brokers cap the setting":  {topic: described(nil, all, [3]int{1, 1, 1}), least: 2},
		"the setting is not told":  {topic: described(nil, all, [3]int{1, 3, 1})},
		"may not be described":     {topic: described(kerr.TopicAuthorizationFailed, all), reason: "TOPIC_AUTHORIZATION_FAILED", remedy: "--operation Write --operation Describe --topic 'orders'"},
		"may not be written to":    {topic: described(nil, describe, [3]int{1, 1, 1}), reason: "does not allow to write to topic", remedy: "--operation Write"},
		"may be written to":        {topic: described(nil, writeOnly, [3]int{1, 1, 1})},
		"checkpoint, not readable": {use: Use{Read: true}, topic: described(nil, writeOnly, [3]int{1, 1, 1}), reason: "does not allow to read topic", remedy: "--operation Read --operation Write"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.use.Topic = "orders"
			w := newTopicWatch(*DefaultOptions(), 3*time.Second, []Use{tc.use})
			now := time.Now()
			look := func(topic kmsg.MetadataResponseTopic) []error {
				return w.judge(t.Context(), tc.least, w.uses(now), []kmsg.MetadataResponseTopic{topic}, now)
			}
			if got := look(tc.topic); len(got) > 0 != (tc.reason != "") {
				t.Errorf("at the start %v", got)
			}
			look(described(nil, all, [3]int{1, 1, 1}))
			// Leaders move: no trouble.
			if first := look(tc.topic); len(first) > 0 {
				t.Errorf("at once %v", first)
			}
			now = now.Add(2 * time.Second)
			look(described(nil, all, [3]int{1, 1, 1}))
			now = now.Add(2 * time.Second)
			if again := look(tc.topic); len(again) > 0 {
				t.Errorf("after it was over %v", again)
			}
			now = now.Add(3 * time.Second)
			got := look(tc.topic)
			if tc.reason == "" {
				if len(got) > 0 {
					t.Errorf("got %v", got)
				}
				return
			}
			if len(got) != 1 || !strings.Contains(got[0].Error(), tc.reason) || !strings.Contains(failure.RemedyOf(got[0]), tc.remedy) {
				t.Errorf("got %v, want %s and %s", got, tc.reason, tc.remedy)
			}
		})
	}
}

func TestTopicsInUseAreThoseUsedLately(t *testing.T) {
	w := newTopicWatch(*DefaultOptions(), 0, []Use{{Topic: "dead"}})
	now := time.Now()
	w.note("retired", now)
	for i := range mostWatched {
		w.note(fmt.Sprint("t", i), now.Add(time.Hour))
	}
	if uses := w.uses(now.Add(2 * time.Hour)); len(uses) != mostWatched+1 || uses["dead"].Topic == "" || uses["retired"].Topic != "" {
		t.Errorf("%d uses", len(uses))
	}
	if uses := w.uses(now.Add(26 * time.Hour)); len(uses) != 1 {
		t.Errorf("after a day %v", uses)
	}
}

// The observer is told again, now and then, of a topic in use.
func TestTopicInUseIsTold(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "orders"))
	w := newWitness()
	k, _ := newKafka(t, c.config(), WithObserver(w))
	deliver(t, k, events("orders", 5))
	deliver(t, k, events("orders", 5))
	if told := len(w.used); told != 1 {
		t.Errorf("told %d times", told)
	}
	k.topics["orders"].told = time.Now().Add(-useEvery)
	deliver(t, k, events("orders", 5))
	if told := len(w.used); told != 2 {
		t.Errorf("told %d times after a minute", told)
	}
}

// A withdrawn ACL shows without a write.
func TestProbeSeesTheRightsThatItLacks(t *testing.T) {
	orders := func(op kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "orders", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true}
	}
	p, _, _ := askCluster(t, 1, func(cfg *Options) {
		cfg.SASL = SASL{Mechanism: "PLAIN", Username: "cdc", Password: "p"}
	}, kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "orders"), kfake.User("PLAIN", "cdc", "p", orders(kmsg.ACLOperationDescribe)))
	p.topics.patient = 0
	p.Used("orders")
	troubles := must.Get(p.once(t.Context()))(t)
	if len(troubles) != 1 || failure.ClassOf(troubles[0]) != failure.Config {
		t.Errorf("got %v", troubles)
	}
}
