package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// ascending fails unless each partition has values in rising order, and there are
// want values without a repeat.
func ascending(t *testing.T, got [][]string, want int) {
	t.Helper()
	seen := make(map[string]bool)
	for p, values := range got {
		last := -1
		for _, v := range values {
			n, err := strconv.Atoi(v)
			if err != nil || n <= last || seen[v] {
				t.Fatalf("partition %d: %q after %d: %v", p, v, last, values)
			}
			last, seen[v] = n, true
		}
	}
	if len(seen) != want {
		t.Fatalf("%d events in the topic, want %d", len(seen), want)
	}
}

func TestDeliverWritesRecordAsGiven(t *testing.T) {
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			c := startCluster(t, kfake.SeedTopics(3, "orders"))
			cfg := c.config()
			cfg.Compression = codec
			k, _ := newKafka(t, cfg)
			at := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
			ev := event("orders", "key", 2, 7)
			ev.Asked = at
			ev.Record.Headers = append(ev.Record.Headers, kgo.RecordHeader{Key: "null"})
			tombstone := event("orders", "key", 2, 8)
			tombstone.Record.Value = nil
			deliver(t, k, []*transform.Event{ev, tombstone})
			got := c.read(t, "orders", 3)[2]
			if len(got) != 2 {
				t.Fatalf("%d records in the partition asked for", len(got))
			}
			r := got[0]
			if string(r.Key) != "key" || string(r.Value) != "7" || !r.Timestamp.Equal(at) {
				t.Errorf("got %s=%s at %v", r.Key, r.Value, r.Timestamp)
			}
			if len(r.Headers) != 2 || string(r.Headers[0].Value) != "id-7" || r.Headers[1].Value != nil {
				t.Errorf("headers %v", r.Headers)
			}
			if got[1].Value != nil {
				t.Errorf("tombstone has value %q", got[1].Value)
			}
		})
	}
}

// The hashes are from Apache Kafka's UtilsTest.testMurmur2.
func TestKeyGoesWhereJavaPutsIt(t *testing.T) {
	hashes := map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	}
	topic := &topic{partitions: 11}
	for key, hash := range hashes {
		rec := &kgo.Record{Key: []byte(key), Partition: transform.PartitionByKey}
		if got, want := topic.choose(rec), (hash&0x7fffffff)%11; got != want {
			t.Errorf("key %q goes to partition %d, want %d", key, got, want)
		}
	}
}

func TestDeliverKeepsOrderOverManyRounds(t *testing.T) {
	c := startCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(4, "orders"))
	cfg := c.config()
	cfg.MaxRecordBytes = 600 // a few records to a share
	k, _ := newKafka(t, cfg)
	largest := c.largestBatch()
	evs := events("orders", 500)
	for len(evs) > 0 {
		n := min(len(evs), 123)
		deliver(t, k, evs[:n])
		evs = evs[n:]
	}
	ascending(t, c.values(t, "orders", 4), 500)
	if n := largest.Load(); n > int64(cfg.MaxRecordBytes) || n < int64(cfg.MaxRecordBytes)/4 {
		t.Errorf("largest batch has %d bytes, want up to %d", n, cfg.MaxRecordBytes)
	}
}

// writesThatFail delivers events while the broker answers so many writes with an
// error.
func writesThatFail(n int, err *kerr.Error) func(t *testing.T) {
	return func(t *testing.T) {
		c := startCluster(t, kfake.SeedTopics(2, "orders"))
		k, _ := newKafka(t, c.config())
		h := c.Fault(kfake.Fault{Keys: []kmsg.Key{produce}, Err: err, Count: n})
		deliver(t, k, events("orders", 100))
		if h.Hits() != n {
			t.Errorf("%d faults hit", h.Hits())
		}
		ascending(t, c.values(t, "orders", 2), 100)
	}
}

func TestMode26LostAckDoesNotRepeat(t *testing.T) {
	t.Run("connection cut", func(t *testing.T) {
		c := startCluster(t, kfake.SeedTopics(2, "orders"))
		k, _ := newKafka(t, c.config())
		for i := range 5 {
			c.cutNextAck()
			deliver(t, k, events("orders", 100)[20*i:20*i+20])
		}
		ascending(t, c.values(t, "orders", 2), 100)
	})
	for _, err := range []*kerr.Error{kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend} {
		t.Run(err.Message, writesThatFail(3, err))
	}
}

func TestMode27RetriableErrorsAreRetried(t *testing.T) {
	for _, err := range []*kerr.Error{
		kerr.NotEnoughReplicas, kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.KafkaStorageError,
		kerr.UnknownServerError, // unknown to the client: ours to retry
	} {
		t.Run(err.Message, writesThatFail(2, err))
	}
	t.Run("leader moves", func(t *testing.T) {
		c := startCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(2, "orders"))
		k, _ := newKafka(t, c.config())
		for i := range 4 {
			deliver(t, k, events("orders", 80)[20*i:20*i+20])
			for p := range int32(2) {
				must.OK(t, c.MoveTopicPartition("orders", p, int32(i)%3))
			}
		}
		ascending(t, c.values(t, "orders", 2), 80)
	})
}

func TestMode29TooLargeEventIsRejectedBetweenItsNeighbours(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "orders"))
	cfg := c.config()
	cfg.MaxRecordBytes = 1000
	k, _ := newKafka(t, cfg)
	evs := events("orders", 10)
	evs[4].Record.Value = bytes.Repeat([]byte("x"), 1001)
	evs[7].Record.Value = bytes.Repeat([]byte("7"), 900) // fits only alone
	evs[9].Record.Partition = 3
	var durable []int
	var got rejects
	reject := func(ctx context.Context, ev *transform.Event, bad *transform.BadEvent) error {
		durable = append(durable, len(c.read(t, "orders", 1)[0]))
		return got.reject(ctx, ev, bad)
	}
	must.OK(t, k.Deliver(deadline(t), evs, reject))
	want := rejects{{"id-4", transform.ReasonRecordTooLarge}, {"id-9", transform.ReasonPartitionRange}}
	if !slices.Equal(got, want) {
		t.Errorf("rejected %v, want %v", got, want)
	}
	if !slices.Equal(durable, []int{4, 8}) {
		t.Errorf("events durable when reject was called: %v, want those before", durable)
	}
	if n := len(c.read(t, "orders", 1)[0]); n != 8 {
		t.Errorf("%d events in the topic", n)
	}
}

func TestMode30OnlyTheRefusedEventIsRejected(t *testing.T) {
	for err, reason := range map[*kerr.Error]transform.Reason{
		kerr.MessageTooLarge:    transform.ReasonRecordTooLarge,
		kerr.RecordListTooLarge: transform.ReasonRecordTooLarge,
		kerr.InvalidRecord:      transform.ReasonRejectedByBroker,
		kerr.PolicyViolation:    transform.ReasonRejectedByBroker,
		kerr.CorruptMessage:     transform.ReasonRejectedByBroker,
	} {
		t.Run(err.Message, func(t *testing.T) {
			c := startCluster(t, kfake.SeedTopics(4, "orders"))
			c.refuse(4, "orders", poison, err)
			k, _ := newKafka(t, c.config())
			evs := events("orders", 200)
			evs[77].Record.Value = poison
			var got rejects
			must.OK(t, k.Deliver(deadline(t), evs, got.reject))
			if want := (rejects{{"id-77", reason}}); !slices.Equal(got, want) {
				t.Errorf("rejected %v, want %v", got, want)
			}
			ascending(t, c.values(t, "orders", 4), 199)
		})
	}
}

var poison = []byte("poison")

func TestMode30RejectErrorStopsThePartition(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "orders"))
	c.refuse(1, "orders", poison, kerr.InvalidRecord)
	k, _ := newKafka(t, c.config())
	evs := events("orders", 20)
	evs[13].Record.Value = poison
	halt := errors.New("halt")
	err := k.Deliver(deadline(t), evs, func(context.Context, *transform.Event, *transform.BadEvent) error { return halt })
	if !errors.Is(err, halt) {
		t.Fatalf("got %v", err)
	}
	ascending(t, c.values(t, "orders", 1), 13)
	if err := k.Deliver(deadline(t), evs[14:], noReject(t)); !errors.Is(err, halt) {
		t.Errorf("the sink goes on after an error: %v", err)
	}
	ascending(t, c.values(t, "orders", 1), 13)
}

// Whichever events are poisoned, the topic must hold the rest, in order, once.
func TestMode30RandomPoison(t *testing.T) {
	for seed := range uint64(25) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 30))
			partitions := 1 + rng.Int32N(5)
			c := startCluster(t, kfake.SeedTopics(partitions, "orders"))
			c.refuse(partitions, "orders", poison, kerr.InvalidRecord)
			for range rng.IntN(3) {
				c.Fault(kfake.Fault{Keys: []kmsg.Key{produce}, Err: kerr.RequestTimedOut, Count: 1 + rng.IntN(2)})
			}
			cfg := c.config()
			cfg.MaxRecordBytes = 300 + rng.Int32N(5000)
			k, _ := newKafka(t, cfg)

			evs := events("orders", 1+rng.IntN(300))
			var want rejects
			for i, ev := range evs {
				switch rng.IntN(30) {
				case 0:
					ev.Record.Value = poison
					want = append(want, rejection{string(ev.ID), transform.ReasonRejectedByBroker})
				case 1:
					ev.Record.Partition = rng.Int32N(partitions)
				case 2:
					ev.Record.Key = nil
				case 3:
					ev.Record.Partition = partitions + rng.Int32N(3)
					want = append(want, rejection{string(ev.ID), transform.ReasonPartitionRange})
				case 4:
					ev.Record.Value = fmt.Appendf(nil, "%0*d", rng.IntN(int(cfg.MaxRecordBytes)/2), i)
				}
			}
			var got rejects
			for rest := evs; len(rest) > 0; {
				n := min(1+rng.IntN(100), len(rest))
				must.OK(t, k.Deliver(deadline(t), rest[:n], got.reject))
				rest = rest[n:]
			}
			byID := func(a, b rejection) int { return bytes.Compare([]byte(a.ID), []byte(b.ID)) }
			slices.SortFunc(got, byID)
			slices.SortFunc(want, byID)
			if !slices.Equal(got, want) {
				t.Errorf("rejected %v, want %v", got, want)
			}
			ascending(t, c.values(t, "orders", partitions), len(evs)-len(want))
		})
	}
}

// While a topic is being loaded, the client puts records aside, and then sends
// them while batches are still being filled. So the refusal of the first may come
// before the rest is there, and the rest be written ahead.
func TestMode30RefusedFirstBatchOfATopic(t *testing.T) {
	var topics []string
	for n := range 4 {
		topics = append(topics, fmt.Sprintf("orders-%d", n))
	}
	c := startCluster(t, kfake.SeedTopics(1, topics...))
	k, _ := newKafka(t, c.config())
	for _, topic := range topics {
		c.refuse(1, topic, poison, kerr.InvalidRecord)
		evs := events(topic, 4000)
		evs[1].Record.Value = poison
		var got rejects
		must.OK(t, k.Deliver(deadline(t), evs, got.reject))
		if want := (rejects{{"id-1", transform.ReasonRejectedByBroker}}); !slices.Equal(got, want) {
			t.Errorf("rejected %v, want %v", got, want)
		}
		ascending(t, c.values(t, topic, 1), len(evs)-1)
	}
}
