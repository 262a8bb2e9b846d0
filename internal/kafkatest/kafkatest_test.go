package kafkatest_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/container"
	"github.com/cdc-outbox/cdc-outbox/internal/kafkatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, container.Goroutines()...) }

func produce(t *testing.T, b *kafkatest.Broker, topic string, values ...string) error {
	t.Helper()
	client := b.Client(t, kgo.UnknownTopicRetries(1), kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer client.Close()
	var records []*kgo.Record
	for _, v := range values {
		records = append(records, &kgo.Record{Topic: topic, Partition: 0, Value: []byte(v)})
	}
	return client.ProduceSync(t.Context(), records...).FirstErr()
}

func TestAcknowledgedRecordsSurviveARestart(t *testing.T) {
	b := kafkatest.Start(t)
	b.CreateTopic(t, "kept", 1, map[string]string{"retention.ms": "-1"})
	if err := produce(t, b, "kept", "one"); err != nil {
		t.Fatal(err)
	}
	b.Restart(t)
	if err := produce(t, b, "kept", "two"); err != nil {
		t.Fatal(err)
	}
	for i, r := range b.Consume(t, []string{"kept"}, kafkatest.Count(2)) {
		if want := []string{"one", "two"}[i]; string(r.Value) != want {
			t.Errorf("record %d = %q, want %q", i, r.Value, want)
		}
	}
}

func TestSettingsReachTheBroker(t *testing.T) {
	b := kafkatest.Start(t, kafkatest.Setting("message.max.bytes", "1000"))
	b.CreateTopic(t, "small", 1, nil)
	if err := produce(t, b, "small", string(make([]byte, 5000))); err == nil {
		t.Error("a record over message.max.bytes was taken")
	}
}

func TestTopicsAreNotCreatedByTheWay(t *testing.T) {
	b := kafkatest.Start(t)
	if err := produce(t, b, "nobody-created-me", "x"); err == nil {
		t.Error("a record for a topic that nobody created was taken")
	}
}

func TestAdvertisedAddressIsWhereClientsGo(t *testing.T) {
	const elsewhere = "127.0.0.1:9"
	b := kafkatest.Start(t, kafkatest.Advertised(elsewhere))
	b.CreateTopic(t, "t", 1, nil) // by a client of the package's own
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	meta, err := kadm.NewClient(client).BrokerMetadata(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := net.JoinHostPort(meta.Brokers[0].Host, strconv.Itoa(int(meta.Brokers[0].Port))); got != elsewhere {
		t.Errorf("advertised %s, want %s", got, elsewhere)
	}
}
