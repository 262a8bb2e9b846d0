package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// CreateTopic creates a topic. settings are topic settings; nil means none.
func (b *Broker) CreateTopic(t testing.TB, name string, partitions int32, settings map[string]string) {
	t.Helper()
	configs := make(map[string]*string, len(settings))
	for k, v := range settings {
		configs[k] = &v
	}
	client := b.Client(t)
	defer client.Close()
	testserver.Do(t, "create topic "+name, func(ctx context.Context) error {
		_, err := kadm.NewClient(client).CreateTopic(ctx, partitions, b.replicas, configs, name)
		return err
	})
}

// Client returns a client of the broker, closed when the test ends.
func (b *Broker) Client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := b.newClient(opts...)
	if err != nil {
		t.Fatalf("Kafka client: %v", err)
	}
	t.Cleanup(client.Close)
	return client
}

// newClient connects to the broker whatever the advertised address. Like the
// connector, the client does not come back at once to a silent broker among several:
// a test waiting for records should not wait for that broker.
func (b *Broker) newClient(opts ...kgo.Opt) (*kgo.Client, error) {
	plain := new(net.Dialer).DialContext
	dial := plain
	if len(b.Brokers) == 1 {
		dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return plain(ctx, network, b.Brokers[0])
		}
	}
	own := append(login(b.users), kgo.SeedBrokers(b.Brokers...), kgo.Dialer(broker.Dialer(dial)))
	return kgo.NewClient(append(own, opts...)...)
}

// Consume reads the topics from their beginnings, as a read_committed consumer,
// until enough says so, and returns everything read, in order within a partition.
// Consume waits for missing topics.
func (b *Broker) Consume(t testing.TB, topics []string, enough func([]*kgo.Record) bool) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	client := b.Client(t,
		kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.MetadataMinAge(50*time.Millisecond), // a topic may be created meanwhile
		kgo.UnknownTopicRetries(-1),
	)
	defer client.Close()
	var records []*kgo.Record
	for !enough(records) {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("consume %v: not enough after %d records", topics, len(records))
		}
		// The client retries after other errors.
		fetches.EachRecord(func(r *kgo.Record) { records = append(records, r) })
	}
	return records
}

// Count is the condition of Consume waiting for n records.
func Count(n int) func([]*kgo.Record) bool {
	return func(records []*kgo.Record) bool { return len(records) >= n }
}

// SetFeature sets the version of a feature of the cluster, such as
// transaction.version, up or down.
func (b *Broker) SetFeature(t testing.TB, name string, version int16) {
	t.Helper()
	client := b.Client(t)
	defer client.Close()
	testserver.Do(t, fmt.Sprintf("set %s to %d", name, version), func(ctx context.Context) error {
		var failed error
		for way := range int8(2) { // up, or down without a loss
			updated, err := kadm.NewClient(client).UpdateFeatures(ctx, false,
				kadm.FeatureUpdate{Feature: name, MaxVersionLevel: version, UpgradeType: 1 + way})
			if failed = errors.Join(err, updated.Error()); failed == nil {
				break
			}
		}
		return failed
	})
}
