package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/producerid"
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
			unnumbered(cluster, producerid.Refusals-1, err)
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
			unnumbered(cluster, producerid.Refusals, err)
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

// A save that brokers do not take says what they answer, and one that they take
// later goes through.
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
