package kafkatest_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/container"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, container.Goroutines()...) }

func TestAdvertisedAddressIsWhereClientsGo(t *testing.T) {
	const elsewhere = "127.0.0.1:9"
	b := kafkatest.Start(t, kafkatest.Advertised(elsewhere))
	b.CreateTopic(t, "t", 1, nil) // by a client of the package's own
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(b.Brokers...)))(t)
	defer client.Close()
	meta := must.Get(kadm.NewClient(client).BrokerMetadata(t.Context()))(t)
	if got := net.JoinHostPort(meta.Brokers[0].Host, strconv.Itoa(int(meta.Brokers[0].Port))); got != elsewhere {
		t.Errorf("advertised %s, want %s", got, elsewhere)
	}
}
