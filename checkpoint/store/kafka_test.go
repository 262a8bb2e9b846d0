package store

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// testTopic is the topic of key "a".
const (
	testBase  = "cdc-outbox.checkpoints"
	testTopic = testBase + ".a"
)

func startKafka(t *testing.T, opts ...kfake.Opt) (*kfake.Cluster, []kgo.Opt) {
	t.Helper()
	c := must.Get(kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3)}, opts...)...))(t)
	t.Cleanup(c.Close)
	return c, []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}
}

// testTools are for remedies.
var testTools = broker.Tools{Bootstrap: "ADDR", Principal: func() string { return "User:cdc" }}

func kafkaPlace(t *testing.T) place {
	_, opts := startKafka(t)
	return kafkaAt(opts)
}

func kafkaAt(opts []kgo.Opt) place {
	open := func(t *testing.T, key string) checkpoint.Store {
		return must.Get(NewKafka(limited(t), opts, testBase, key, testTools))(t)
	}
	return place{
		open: open,
		write: func(t *testing.T, key, value string) {
			open(t, key).Close() // creates the topic
			produce(t, opts, key, []byte(value))
		},
	}
}

func produce(t *testing.T, opts []kgo.Opt, key string, value []byte) {
	t.Helper()
	client := must.Get(kgo.NewClient(opts...))(t)
	defer client.Close()
	rec := &kgo.Record{Topic: Topic(testBase, key), Key: []byte(key), Value: value}
	must.OK(t, client.ProduceSync(limited(t), rec).FirstErr())
}

func TestKafkaKeysDoNotMix(t *testing.T) {
	p := kafkaPlace(t)
	a, b := p.store(t, "a"), p.store(t, "b")
	save(t, a, sample(1))
	wantNone(t, b)
	save(t, b, sample(2))
	wantLoad(t, a, sample(1))
	wantLoad(t, b, sample(2))
}

// Topics of siblings are not read: the brokers are asked about the others alone.
func TestKafkaLeavesOutSiblings(t *testing.T) {
	c, opts := startKafka(t)
	p := kafkaAt(opts)
	for _, key := range []string{"shop/a", "shop/b", "shop/c", "custom"} {
		save(t, p.store(t, key), sample(1))
	}
	own := p.store(t, "shop/a").(*kafka)
	var read atomic.Int64
	c.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		read.Add(1)
		return nil, nil, false
	})
	keysOf := func(siblings ...string) (keys []string) {
		for _, o := range must.Get(own.others(limited(t), siblings))(t) {
			keys = append(keys, o.key)
		}
		slices.Sort(keys)
		return keys
	}
	if got := keysOf("b", "x"); !slices.Equal(got, []string{"custom", "shop/c"}) {
		t.Errorf("checkpoints of %v", got)
	}
	before := read.Load()
	if got := keysOf("b", "c"); !slices.Equal(got, []string{"custom"}) || read.Load()-before > before {
		t.Errorf("checkpoints of %v, by %d reads", got, read.Load()-before)
	}
	if got := keysOf(); !slices.Equal(got, []string{"custom", "shop/b", "shop/c"}) {
		t.Errorf("checkpoints of %v", got)
	}
}

func TestKafkaCreatesACompactedTopic(t *testing.T) {
	cluster, opts := startKafka(t)
	kafkaAt(opts).store(t, "a")
	policy := cluster.TopicInfo(testTopic).Configs["cleanup.policy"]
	if policy == nil || *policy != "compact" {
		t.Errorf("cleanup.policy %v, want compact", policy)
	}
	if n := len(cluster.PartitionInfos(testTopic)); n != 1 {
		t.Errorf("%d partitions, want 1", n)
	}
}

func TestKafkaRefusesTopics(t *testing.T) {
	cases := []struct {
		name       string
		partitions int32
		policy     string
		class      failure.Class
		remedy     string
	}{
		{"not compacted", 1, "delete", failure.Loss,
			"kafka-configs.sh --bootstrap-server ADDR --alter --entity-type topics --entity-name 'cdc-outbox.checkpoints.a' --add-config cleanup.policy=compact"},
		{"compacted and deleted", 1, "compact,delete", failure.Loss, "--add-config cleanup.policy=compact"},
		{"two partitions", 2, "compact", failure.Config, "checkpoint.topic"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cluster, opts := startKafka(t)
			must.OK(t, cluster.CreateTopic(testTopic, c.partitions, map[string]string{"cleanup.policy": c.policy}))
			_, err := NewKafka(limited(t), opts, testBase, "a", testTools)
			remedy := failure.RemedyOf(err)
			if failure.ClassOf(err) != c.class || !strings.Contains(remedy, c.remedy) {
				t.Errorf("%v, remedy %q; want class %d, remedy with %q", err, remedy, c.class, c.remedy)
			}
		})
	}
}

func TestKafkaIllegalTopicName(t *testing.T) {
	cluster, opts := startKafka(t)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.InvalidTopicException})
	_, err := NewKafka(limited(t), opts, "check points", "a", testTools)
	if failure.ClassOf(err) != failure.Config || !strings.Contains(failure.RemedyOf(err), "checkpoint.topic") {
		t.Errorf("%v, want a configuration error about checkpoint.topic", err)
	}
}

// TestKafkaNotAllowed is failure mode 32.
func TestKafkaNotAllowed(t *testing.T) {
	cluster, opts := startKafka(t)
	kafkaAt(opts).store(t, "a")
	for operation, c := range map[string]struct {
		key  kmsg.Key
		call func() error
	}{
		"Write": {kmsg.Produce, func() error { return kafkaAt(opts).store(t, "a").Save(limited(t), sample(1)) }},
		"DescribeConfigs": {kmsg.DescribeConfigs, func() error {
			_, err := NewKafka(limited(t), opts, testBase, "a", testTools)
			return err
		}},
	} {
		t.Run(operation, func(t *testing.T) {
			defer cluster.Fault(kfake.Fault{Keys: []kmsg.Key{c.key}, Err: kerr.TopicAuthorizationFailed, Count: -1}).Remove()
			err := c.call()
			// All at once: a remedy for one privilege is followed by the next.
			want := "--allow-principal 'User:cdc' --operation Read --operation Write --operation Describe --operation DescribeConfigs --operation Create --topic '" + testTopic + "'"
			if failure.ClassOf(err) != failure.Config || !strings.Contains(failure.RemedyOf(err), want) || !strings.Contains(err.Error(), operation) {
				t.Errorf("%v, remedy %q; want a configuration error about %s with %q", err, failure.RemedyOf(err), operation, want)
			}
		})
	}
}

// TestKafkaTopicDeleted is failure mode 36.
func TestKafkaTopicDeleted(t *testing.T) {
	cluster, opts := startKafka(t)
	s := kafkaAt(opts).store(t, "a")
	save(t, s, sample(1))
	must.OK(t, cluster.DeleteTopic(testTopic))
	if err := s.Save(limited(t), sample(2)); failure.ClassOf(err) != failure.Loss {
		t.Errorf("save: %v, want a loss", err)
	}
	if _, _, err := s.Load(limited(t)); failure.ClassOf(err) != failure.Loss {
		t.Errorf("load: %v, want a loss", err)
	}
}

func TestKafkaTombstoneForgets(t *testing.T) {
	_, opts := startKafka(t)
	p := kafkaAt(opts)
	s := p.store(t, "a")
	save(t, s, sample(1))
	produce(t, opts, "a", nil)
	wantNone(t, s)
	back := sample(1)
	back.Epoch = 1
	save(t, s, back)
	wantLoad(t, s, back)
}

func TestKafkaGarbageThatWasOverwrittenIsPast(t *testing.T) {
	p := kafkaPlace(t)
	p.write(t, "a", "garbage")
	s := p.store(t, "a")
	wantRefusal(t, s, `under key "a"`)
	save(t, s, sample(1))
	wantLoad(t, s, sample(1))
}

func TestKafkaFindsTheCheckpointOfACompactedTopic(t *testing.T) {
	cluster, opts := startKafka(t)
	p := kafkaAt(opts)
	s := p.store(t, "a")
	for i := range uint64(500) {
		save(t, s, sample(i+1))
	}
	cluster.Compact()
	wantLoad(t, s, sample(500))
	wantLoad(t, p.store(t, "a"), sample(500))
}

// A former holder of the slot was paused, and writes a checkpoint long after the successor's
// last, with any number of others' records in between. A store that has seen the successor's
// checkpoint finds it again, and a new store finds it, too.
func TestKafkaIsNotSetBackByALateSave(t *testing.T) {
	_, opts := startKafka(t)
	p := kafkaAt(opts)
	former, before := p.store(t, "a"), p.store(t, "a")
	late, last := sample(10), sample(20)
	late.Epoch, last.Epoch = 3, 4
	save(t, p.store(t, "a"), last)
	wantLoad(t, before, last)
	client := must.Get(kgo.NewClient(opts...))(t)
	defer client.Close()
	for range 300 {
		must.OK(t, client.ProduceSync(limited(t), &kgo.Record{Topic: testTopic, Key: []byte("another"), Value: []byte("{}")}).FirstErr())
	}
	save(t, former, late)
	wantLoad(t, before, last)
	wantLoad(t, p.store(t, "a"), last)
	must.OK(t, Forget(limited(t), before))
	wantNone(t, before)
	save(t, former, late)
	wantLoad(t, before, late) // a new beginning after Forget
}

// TestKafkaPassesTransactions: markers and aborted records at the end are not
// records, and an open transaction is no end.
func TestKafkaPassesTransactions(t *testing.T) {
	_, opts := startKafka(t)
	s := kafkaAt(opts).store(t, "a")
	save(t, s, sample(1))

	tx := must.Get(kgo.NewClient(append(opts, kgo.TransactionalID("tx"), kgo.RecordPartitioner(kgo.ManualPartitioner()))...))(t)
	defer tx.Close()
	write := func(cp checkpoint.Checkpoint) {
		t.Helper()
		must.OK(t, tx.BeginTransaction())
		rec := &kgo.Record{Topic: testTopic, Key: []byte("a"), Value: []byte(mustEncode(t, cp))}
		must.OK(t, tx.ProduceSync(limited(t), rec).FirstErr())
	}
	end := func(how kgo.TransactionEndTry) {
		t.Helper()
		must.OK(t, tx.EndTransaction(limited(t), how))
	}

	write(sample(2))
	for _, load := range []func(context.Context) (checkpoint.Checkpoint, bool, error){s.Load, func(ctx context.Context) (checkpoint.Checkpoint, bool, error) { return LoadUnheld(ctx, s) }} {
		if _, _, err := load(limited(t)); !errors.Is(err, kafkalog.ErrOpenTransaction) {
			t.Errorf("load beside an open transaction: %v", err)
		}
	}
	wantWritten := func(want checkpoint.Checkpoint) {
		t.Helper()
		if got, ok, err := LastWritten(limited(t), s); err != nil || !ok || got.LSN != want.LSN {
			t.Errorf("the last checkpoint written is %v, %t, %v, want %v", got, ok, err, want)
		}
	}
	wantWritten(sample(2))
	if _, ok, err := LastWritten(limited(t), kafkaAt(opts).store(t, "b")); ok || err != nil {
		t.Errorf("under another key: %t, %v", ok, err)
	}
	end(kgo.TryAbort)
	wantLoad(t, s, sample(1))
	wantWritten(sample(2))
	write(sample(3))
	end(kgo.TryCommit)
	wantLoad(t, s, sample(3))
}

// TestEndOfTransactionsIsWaitedFor measures the waits on a clock of its own. The end may come
// later than the patience: there are leastAsked questions in any case.
func TestEndOfTransactionsIsWaitedFor(t *testing.T) {
	for _, c := range []struct{ patience, read, want time.Duration }{
		{openPatience, 0, openPatience + openPoll},
		{unheldPatience, 0, unheldPatience + openPoll},
		{unheldPatience, time.Second, leastAsked*time.Second + (leastAsked-1)*openPoll},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := settled(t.Context(), c.patience, func() error {
				<-time.After(c.read)
				return kafkalog.ErrOpenTransaction
			})
			if waited := time.Since(began); waited != c.want || !errors.Is(err, kafkalog.ErrOpenTransaction) {
				t.Errorf("with a patience of %s and reads of %s: %v after %s, want %s", c.patience, c.read, err, waited, c.want)
			}
		})
	}
}

// hangUp makes the brokers cut the connection instead of answering the first n
// produce requests.
func hangUp(cluster *kfake.Cluster, n int64) {
	var seen atomic.Int64
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		if seen.Add(1) > n {
			return nil, nil, false
		}
		cluster.KeepControl()
		return nil, errors.New("hang up"), true
	})
}

func TestKafkaSaveWaitsForTheBroker(t *testing.T) {
	cluster, opts := startKafka(t)
	s := kafkaAt(opts).store(t, "a")
	hangUp(cluster, 5)
	save(t, s, sample(1))
	wantLoad(t, s, sample(1))
}

func TestKafkaSaveEndsWithItsContext(t *testing.T) {
	cluster, opts := startKafka(t)
	s := kafkaAt(opts).store(t, "a")
	hangUp(cluster, math.MaxInt64)
	saveEnds(t, s)
}

// A broker that has the request and says nothing holds up a stop no longer than the
// save's context.
func TestKafkaSaveToASilentBrokerEndsWithItsContext(t *testing.T) {
	cluster, opts := startKafka(t)
	s := kafkaAt(append(opts, kgo.RequestTimeoutOverhead(never))).store(t, "a")
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		return nil, nil, true // no answer at all
	})
	saveEnds(t, s)
}

// saveEnds saves without an answer.
func saveEnds(t *testing.T, s checkpoint.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	wantEnd(t, func() error { return s.Save(ctx, sample(1)) }, func() {})
}

// wantEnd wants the call to end with an error after end, the end of the call's context.
func wantEnd(t *testing.T, call func() error, end func()) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	end()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the call succeeded without an answer")
		}
	case <-limited(t).Done():
		t.Error("the call goes on after its context has ended")
	}
}

// Neither open nor load waits for new records: brokers would hold the answer back
// for longer than the test lives.
func TestKafkaLoadWaitsForNoNewRecords(t *testing.T) {
	_, opts := startKafka(t)
	p := kafkaAt(append(opts, kgo.FetchMaxWait(never)))
	s := p.store(t, "a")
	for i := range uint64(500) {
		save(t, s, sample(i+1))
	}
	wantLoad(t, p.store(t, "a"), sample(500))
}

// Failure mode 64: a record with the headers of an event is no checkpoint and no tombstone.
// If nothing else is left under the key, a checkpoint may have been there.
func TestKafkaPassesOverEvents(t *testing.T) {
	_, opts := startKafka(t)
	s := kafkaAt(opts).store(t, "a")
	event := func(value []byte) {
		client := must.Get(kgo.NewClient(opts...))(t)
		defer client.Close()
		rec := &kgo.Record{Topic: testTopic, Key: []byte("a"), Value: value, Headers: []kgo.RecordHeader{{Key: "id", Value: []byte("1")}}}
		must.OK(t, client.ProduceSync(limited(t), rec).FirstErr())
	}
	forged := sample(9)
	forged.Epoch = 99
	values := [][]byte{must.Get(encode(forged))(t), nil, []byte("{}")}
	event(values[0])
	if _, _, err := s.Load(limited(t)); failure.ClassOf(err) != failure.Config || !strings.Contains(err.Error(), "headers that no checkpoint has") {
		t.Errorf("with nothing but an event under the key: %v", err)
	}
	save(t, s, sample(1))
	for _, value := range values {
		event(value)
	}
	wantLoad(t, s, sample(1))
	save(t, s, sample(2))
	wantLoad(t, s, sample(2))
}
