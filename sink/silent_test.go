package sink

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/kafkatest"
)

// A broker that takes the connection and says nothing holds up a stop no longer
// than one that is down.
func TestMode25CancelWhileABrokerIsSilentReturnsAtOnce(t *testing.T) {
	addr, asked := kafkatest.Silent(t)
	cfg := DefaultOptions()
	cfg.Brokers = []string{addr}
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
	if took := time.Since(canceled); took > atOnce {
		t.Errorf("returned and closed %v after the cancel", took)
	}
}
