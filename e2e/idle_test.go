package e2e

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// TestE2EIdleOutboxBesideBusyTables writes to other tables only: the slot must
// follow (failure mode 23). A single large lag may be the machine's doing, so
// half of the samples count.
func TestE2EIdleOutboxBesideBusyTables(t *testing.T) {
	const limit = 1 << 20
	const enough = 20 * limit // of log
	w := newWorld(t, options{unread: true})
	c := w.start()
	before, ok := w.look()
	if !ok {
		t.Fatal("no slot")
	}
	stop := w.keepBusy()

	var lags []int64
	await.Until(t, "slot that follows", func() bool {
		c.running()
		now, ok := w.look()
		if ok {
			lags = append(lags, now.lag)
		}
		return ok && now.confirmed-before.confirmed >= enough
	})
	must.OK(t, stop())
	slices.Sort(lags)
	median, worst := lags[len(lags)/2], lags[len(lags)-1]
	t.Logf("lag in %d samples: median %.2f MiB, at most %.2f MiB", len(lags), mebibytes(median), mebibytes(worst))
	if median >= limit {
		t.Errorf("the slot's lag was %d bytes in half of the samples, want less than %d", median, limit)
	}
	await.Until(t, "slot that catches up", func() bool {
		now, ok := w.look()
		return ok && now.lag < limit
	})
	c.stop()
}

// keepBusy updates another table than the outbox, a few megabytes a second,
// until stop; stop returns the error, if any.
func (w *world) keepBusy() (stop func() error) {
	w.t.Helper()
	conn := connect(w.t, w.url)
	ctx, cancel := context.WithCancel(context.Background())
	written := make(chan error, 1)
	go func() { written <- update(ctx, conn) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-written
	})
	w.t.Cleanup(func() { _ = stop() }) // the test has seen the error, or failed
	return stop
}

func update(ctx context.Context, conn *pgx.Conn) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		_, err := conn.Exec(context.WithoutCancel(ctx), "UPDATE stock SET n = n + 1, filler = repeat('x', 1000) WHERE id % 4 = $1", n%4)
		if err != nil {
			return err
		}
	}
}
