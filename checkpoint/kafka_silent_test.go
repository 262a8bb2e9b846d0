package checkpoint

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/kafkatest"
)

// never is how long a client is to wait for an answer, so that nothing but its
// context ends a wait. (franz-go allows fifteen minutes.)
const never = 10 * time.Minute

// A broker that takes the connection and says nothing holds up a stop no longer
// than the context lives.
func TestKafkaOpenAtASilentBrokerEndsWithItsContext(t *testing.T) {
	addr, asked := kafkatest.Silent(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	opened := make(chan error, 1)
	go func() {
		_, err := NewKafka(ctx, []kgo.Opt{kgo.SeedBrokers(addr), kgo.RequestTimeoutOverhead(never)}, "checkpoints", "a")
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
