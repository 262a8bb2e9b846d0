package sink

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/config"
)

// A broker that takes the connection and says nothing holds up a stop no longer
// than one that is down.
func TestMode25CancelWhileABrokerIsSilentReturnsAtOnce(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{})
	var accepting sync.WaitGroup
	accepting.Go(func() {
		var once sync.Once
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				once.Do(func() { close(asked) })
			}
		}
	})
	t.Cleanup(func() {
		_ = silent.Close()
		accepting.Wait()
	})
	cfg := config.DefaultKafka()
	cfg.Brokers = []string{silent.Addr().String()}
	k, _ := newKafka(t, *cfg)
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	var canceled time.Time
	go func() {
		<-asked
		canceled = time.Now()
		cancel(stop)
	}()
	if err := k.Deliver(ctx, events("orders", 1), noReject(t)); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	k.Close()
	if took := time.Since(canceled); took > 2*time.Second {
		t.Errorf("returned and closed %v after the cancel", took)
	}
}
