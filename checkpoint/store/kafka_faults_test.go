package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// unnumbered makes brokers refuse the next n producers their ids.
func unnumbered(cluster *kfake.Cluster, n int64, err *kerr.Error) {
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: err, Count: int(n)})
}

func TestKafkaSavesAfterARefusedProducerID(t *testing.T) {
	for _, err := range []*kerr.Error{
		kerr.ClusterAuthorizationFailed, kerr.UnknownServerError, kerr.InvalidRequest,
		kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.RequestTimedOut,
	} {
		t.Run(err.Message, func(t *testing.T) {
			cluster, opts := startKafka(t)
			s := kafkaAt(opts).store(t, "a")
			unnumbered(cluster, broker.Refusals-1, err)
			save(t, s, sample(1))
			save(t, s, sample(2))
			wantLoad(t, s, sample(2))
		})
	}
}

func TestKafkaProducerIDRefusedForGood(t *testing.T) {
	for err, class := range map[*kerr.Error]failure.Class{
		kerr.ClusterAuthorizationFailed: failure.Config,
		kerr.UnknownServerError:         failure.Transient,
	} {
		t.Run(err.Message, func(t *testing.T) {
			cluster, opts := startKafka(t)
			s := kafkaAt(opts).store(t, "a")
			unnumbered(cluster, broker.Refusals, err)
			got := s.Save(limited(t), sample(1))
			if !errors.Is(got, err) || failure.ClassOf(got) != class {
				t.Errorf("Save = %v of class %d", got, failure.ClassOf(got))
			}
			if class == failure.Config && !strings.Contains(failure.RemedyOf(got), "--operation IdempotentWrite --cluster") {
				t.Errorf("remedy %q", failure.RemedyOf(got))
			}
			save(t, s, sample(2)) // the broker knows better by now
			wantLoad(t, s, sample(2))
		})
	}
}

// A refused save returns the brokers' answer, and a later save goes through.
func TestKafkaSaveTellsTheBrokersError(t *testing.T) {
	for _, err := range []*kerr.Error{kerr.NotEnoughReplicas, kerr.LeaderNotAvailable, kerr.NotLeaderForPartition} {
		t.Run(err.Message, func(t *testing.T) {
			cluster, opts := startKafka(t)
			s := kafkaAt(opts).store(t, "a")
			save(t, s, sample(1))
			var broken atomic.Bool
			broken.Store(true)
			cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: testTopic, Partitions: []int32{0}, Err: err, Count: -1,
				When: func(kmsg.Request) bool { return broken.Load() }})
			if got := s.Save(limited(t), sample(2)); !errors.Is(got, err) || failure.ClassOf(got) != failure.Transient {
				t.Errorf("Save = %v", got)
			}
			broken.Store(false)
			save(t, s, sample(3))
			wantLoad(t, s, sample(3))
		})
	}
}

// The partition lost its leader: brokers say so when asked for metadata, and
// take no request to write.
func TestKafkaSaveWithoutALeader(t *testing.T) {
	cluster, opts := startKafka(t)
	s := kafkaAt(opts).store(t, "a")
	save(t, s, sample(1))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: testTopic, Partitions: []int32{0}, Err: kerr.NotLeaderForPartition, Count: -1})
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: testTopic, Partitions: []int32{0}, Err: kerr.LeaderNotAvailable, Count: -1})
	if got := s.Save(limited(t), sample(2)); !errors.Is(got, kerr.LeaderNotAvailable) {
		t.Errorf("Save = %v", got)
	}
}

func TestKafkaSaveTellsThatBrokersAreDown(t *testing.T) {
	cluster, opts := startKafka(t)
	s := kafkaAt(opts).store(t, "a")
	save(t, s, sample(1))
	addrs := cluster.ListenAddrs()
	cluster.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	err := s.Save(ctx, sample(2))
	if err == nil || !slices.ContainsFunc(addrs, func(addr string) bool { return strings.Contains(err.Error(), addr) }) {
		t.Errorf("Save = %v, which names no broker", err)
	}
}

// never is a client's patience for an answer, so that only the context ends a wait.
// (franz-go allows fifteen minutes.)
const never = 10 * time.Minute

// A load ends at a broker silent since the opening, too.
func TestKafkaLoadAtASilentBrokerEndsWithItsContext(t *testing.T) {
	addr, asked := kafkatest.Silent(t)
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(addr), kgo.RequestTimeoutOverhead(never)))(t)
	k := &kafka{client: client, writer: client, topic: "checkpoints", key: "a"}
	defer k.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wantEnd(t, func() error { _, _, err := k.Load(ctx); return err }, func() { <-asked; cancel() })
}

// A broker that takes the connection and says nothing holds up a stop no longer
// than the context lives.
func TestKafkaOpenAtASilentBrokerEndsWithItsContext(t *testing.T) {
	addr, asked := kafkatest.Silent(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wantEnd(t, func() error {
		_, err := NewKafka(ctx, []kgo.Opt{kgo.SeedBrokers(addr), kgo.RequestTimeoutOverhead(never)}, "checkpoints", "a", testTools)
		return err
	}, func() { <-asked; cancel() })
}

// unaware makes the brokers answer the next three requests of a kind like a broker
// just started, or without news of a new topic: they know no topic.
func unaware(cluster *kfake.Cluster, key kmsg.Key) *kfake.FaultHandle {
	return cluster.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: kerr.UnknownTopicOrPartition, Count: 3})
}

// A broker that does not know the topic yet is no sign of a deletion.
func TestKafkaLoadFromABrokerThatJustCameUp(t *testing.T) {
	cluster, opts := startKafka(t)
	s := kafkaAt(opts).store(t, "a")
	save(t, s, sample(1))
	for answers := unaware(cluster, kmsg.Metadata); answers.Hits() < 3; { // the client remembers the topic for a moment
		wantLoad(t, s, sample(1))
	}
}

// Another instance has just created the topic, and not all brokers have heard
// of it.
func TestKafkaTopicThatIsNewToABroker(t *testing.T) {
	for name, key := range map[string]kmsg.Key{"metadata": kmsg.Metadata, "configuration": kmsg.DescribeConfigs} {
		t.Run(name, func(t *testing.T) {
			cluster, opts := startKafka(t)
			p := kafkaAt(opts)
			save(t, p.store(t, "a"), sample(1))
			unaware(cluster, key)
			wantLoad(t, p.store(t, "a"), sample(1))
		})
	}
}

// The leader has moved since the question.
func TestKafkaLoadFromALeaderThatRefuses(t *testing.T) {
	for _, key := range []kmsg.Key{kmsg.ListOffsets, kmsg.Fetch} {
		for _, err := range []*kerr.Error{kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.NotLeaderForPartition} {
			t.Run(key.Name()+" "+err.Message, func(t *testing.T) {
				cluster, opts := startKafka(t)
				s := kafkaAt(opts).store(t, "a")
				save(t, s, sample(1))
				refusals := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Topic: testTopic, Err: err, Count: 2})
				wantLoad(t, s, sample(1))
				if refusals.Hits() != 2 {
					t.Errorf("%d refusals, want 2", refusals.Hits())
				}
			})
		}
	}
}

// A process stopped in between has spent the patience on a single answer.
func TestUntilKnownAsksAgainWhateverTheTime(t *testing.T) {
	answers := []error{kerr.UnknownTopicOrPartition, kerr.LeaderNotAvailable, kerr.UnknownTopicOrPartition, nil}
	asked := 0
	err := untilKnown(t.Context(), 0, func(context.Context) error {
		asked++
		return answers[asked-1]
	})
	if err != nil || asked != len(answers) {
		t.Errorf("%v after %d answers, want all %d", err, asked, len(answers))
	}
}

// An abandoned save takes no later save along: the client fails all records that
// wait behind a record with an ended context.
func TestKafkaSaveAfterOneThatWasGivenUp(t *testing.T) {
	cluster, opts := startKafka(t)
	s := kafkaAt(opts).store(t, "a")
	release, held := make(chan struct{}), make(chan struct{})
	var once sync.Once
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		once.Do(func() { close(held) })
		<-release
		return nil, nil, false
	})
	givenUp, giveUp := context.WithCancel(t.Context())
	var saves sync.WaitGroup
	saves.Go(func() { _ = s.Save(givenUp, sample(1)) }) // at the broker
	<-held
	saves.Go(func() { _ = s.Save(givenUp, sample(2)) }) // behind it
	last := make(chan error, 1)
	saves.Go(func() { last <- s.Save(limited(t), sample(3)) })
	giveUp()
	close(release)
	if err := <-last; err != nil {
		t.Errorf("Save = %v, though its own context goes on", err)
	}
	saves.Wait()
}
