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
