package checkpoint

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A broker that takes the connection and says nothing holds up a stop no longer
// than the context lives.
func TestKafkaOpenAtASilentBrokerEndsWithItsContext(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				cancel()
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = silent.Close()
		accepting.Wait()
	})
	opened := make(chan error, 1)
	go func() {
		_, err := NewKafka(ctx, []kgo.Opt{kgo.SeedBrokers(silent.Addr().String())}, "checkpoints", "a")
		opened <- err
	}()
	<-ctx.Done()
	select {
	case err := <-opened:
		if err == nil {
			t.Error("opened without an answer")
		}
	case <-time.After(5 * time.Second):
		t.Errorf("opening goes on after its context has ended, then: %v", <-opened)
	}
}
