package stream

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Without commits there is no Kafka transaction. With others' commits there is a
// transaction a second for the slot's sake, however much log they write.
func TestIdleExactlyOnceWritesHardlyATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, m := &transactor{}, &counts{}
		p := Parts{Options: defaultOptions(), Router: &transform.Router{}, Store: &fakeStore{}, Metrics: m, Kafka: delivery.NewDownstream(m), Log: zap.NewNop(),
			Transactions: &Transactions{Sink: x, Marker: x}}
		k := keeping{checkpointer: newPipeline(p, usual).checkpointer}
		must.OK(t, k.begin(t.Context(), checkpoint.Checkpoint{LSN: 1000, Slot: "s", Epoch: 7}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.run(ctx) }()

		pass(time.Hour)
		if len(x.commits) != 1 {
			t.Errorf("%d transactions in an hour, want only the first one", len(x.commits))
		}
		const seconds, each = 10, 20 * time.Millisecond
		at := pg.LSN(1000)
		for range seconds * (time.Second / each) {
			at += saveBytes
			k.idleTo(t, at)
			pass(each)
		}
		if n := len(x.commits) - 1; n < seconds-1 || n > seconds+1 {
			t.Errorf("%d transactions in %d seconds in which others write much log, want one a second", n, seconds)
		}
		cancel()
		must.OK(t, <-done)
	})
}
