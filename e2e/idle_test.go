package e2e

import (
	"context"
	"testing"
	"time"
)

// TestIdleOutboxBesideBusyTables writes to other tables only: the slot must
// follow (failure mode 23).
func TestIdleOutboxBesideBusyTables(t *testing.T) {
	const limit = 1 << 20
	busy := 6 * time.Second
	if testing.Short() {
		busy = 2 * time.Second
	}
	w := newWorld(t, options{unread: true})
	c := w.start()
	ctx, cancel := context.WithTimeout(context.Background(), busy)
	defer cancel()
	before, _ := w.look()
	written := make(chan error, 1)
	go func() { written <- w.keepBusy(ctx) }()

	var worst int64
	samples := 0
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		<-tick.C
		s, ok := w.look()
		if !ok {
			t.Fatal("no slot")
		}
		worst = max(worst, s.lag)
		samples++
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	after, _ := w.look()
	grown := after.confirmed - before.confirmed
	t.Logf("%.1f MiB of log, lag at most %.2f MiB in %d samples", mebibytes(int64(grown)), mebibytes(worst), samples)
	if worst >= limit {
		t.Errorf("the slot's lag was %d bytes, want less than %d", worst, limit)
	}
	if grown < 4*limit {
		t.Errorf("the tables were not busy: %d bytes of log", grown)
	}
	c.stop()
}

// keepBusy updates a table that is not the outbox, a few megabytes a second,
// until ctx ends.
func (w *world) keepBusy(ctx context.Context) error {
	conn := connect(w.t, w.url)
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
