package store

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/kafkatest"
)

// never is how long a client is to wait for an answer, so that nothing but its
// context ends a wait. (franz-go allows fifteen minutes.)
const never = 10 * time.Minute

// So does a load, at a broker that has fallen silent since.
func TestKafkaLoadAtASilentBrokerEndsWithItsContext(t *testing.T) {
	addr, asked := kafkatest.Silent(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RequestTimeoutOverhead(never))
	if err != nil {
		t.Fatal(err)
	}
	k := &kafka{client: client, writer: client, admin: kadm.NewClient(client), topic: "checkpoints", key: "a"}
	defer k.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	loaded := make(chan error, 1)
	go func() {
		_, _, err := k.Load(ctx)
		loaded <- err
	}()
	<-asked
	cancel()
	select {
	case err := <-loaded:
		if err == nil {
			t.Error("loaded without an answer")
		}
	case <-limited(t).Done():
		t.Error("loading goes on after its context has ended")
	}
}

// A broker that takes the connection and says nothing holds up a stop no longer
// than the context lives.
func TestKafkaOpenAtASilentBrokerEndsWithItsContext(t *testing.T) {
	addr, asked := kafkatest.Silent(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	opened := make(chan error, 1)
	go func() {
		_, err := NewKafka(ctx, []kgo.Opt{kgo.SeedBrokers(addr), kgo.RequestTimeoutOverhead(never)}, "checkpoints", "a", "User:cdc")
		opened <- err
	}()
	<-asked
	cancel()
	select {
	case err := <-opened:
		if err == nil {
			t.Error("opened without an answer")
		}
	case <-limited(t).Done():
		t.Error("opening goes on after its context has ended")
	}
}
