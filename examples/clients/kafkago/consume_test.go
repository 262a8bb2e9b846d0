package kafkago_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/examples/clients/kafkago"
	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEachEventIsHandledOnce reads what tests/idempotency has written in
// transactions. That test runs this one, with the broker and the committed
// events, and with nothing behind the last of them.
func TestEachEventIsHandledOnce(t *testing.T) {
	broker, events := os.Getenv("CDC_OUTBOX_TEST_BROKER"), strings.Fields(os.Getenv("CDC_OUTBOX_TEST_EVENTS"))
	if broker == "" {
		t.Skip("tests/idempotency runs it, with a broker")
	}
	processor, err := idempotency.New(idempotency.Options{
		Store: memory.New(memory.Options{}),
		DeadLetter: func(_ context.Context, d idempotency.DeadLetter) error {
			t.Errorf("a dead letter: %v", d.Reason)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer processor.Close()
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{broker}, GroupID: "shipping", Topic: "orders", StartOffset: kafka.FirstOffset,
		IsolationLevel: kafka.ReadCommitted, MaxWait: 100 * time.Millisecond,
	})
	defer func() {
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var handled []string
	err = kafkago.Consume(ctx, reader, processor, func(_ context.Context, m kafka.Message) error {
		handled = append(handled, string(m.Value))
		if handled[len(handled)-1] == events[len(events)-1] {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Consume returned %v", err)
	}
	if !slices.Equal(handled, events) {
		t.Errorf("handled %q, want %q", handled, events)
	}
}
