package stream

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/catchup"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/beat"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
)

// demands are positions that clients wait for: the first that is not saved, and
// the last. Without the first, ever new demands of a busy log would put off the
// save; the last takes its place after the save.
type demands struct{ first, last pg.LSN }

// demand has the position saved as soon as it reaches lsn, and not with the next
// idle save: a client waits for it. demand never blocks for long.
func (k *checkpointer) demand(lsn pg.LSN) {
	k.mu.Lock()
	k.demands.last = lsn
	k.mu.Unlock()
	session.Wake(k.wake)
}

// awaited reports whether the tracker's position has reached a demand that is not
// saved.
func (k *checkpointer) awaited() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d := &k.demands; d.first <= k.confirmed() {
		d.first = d.last
	}
	return k.demands.first > k.confirmed() && k.demands.first <= k.tracker.Position()
}

// forgetDemands is for another stream, which may be of another log.
func (k *checkpointer) forgetDemands() {
	k.mu.Lock()
	k.demands = demands{}
	k.mu.Unlock()
}

// listen has the server notify conn of clients that wait for a confirmation. Where
// nothing arrives, as through a pooler, they wait for the next idle save.
func (s *source) listen(ctx context.Context, conn *pgx.Conn) {
	if _, err := conn.Exec(ctx, "LISTEN "+pgsql.Name(catchup.Channel)); err != nil {
		s.log.Debug("cannot listen to clients that wait for a confirmation", zap.Error(err))
	}
}

// pause is the time between two looks on conn, which may be nil. Meanwhile clients
// may demand a confirmation. pause returns ctx's cause once ctx has ended.
func (s *source) pause(ctx context.Context, conn *pgx.Conn) error {
	began, often := time.Now(), beat.Within(s.tenure.often(s.limits.monitor))
	if conn != nil && !conn.IsClosed() {
		s.lastWords = s.hear(ctx, conn, often)
	}
	return backoff.Sleep(ctx, often-time.Since(began))
}

// hear passes on demands for a while. It returns why the connection has ended, if so.
func (s *source) hear(ctx context.Context, conn *pgx.Conn, often time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, often)
	defer cancel()
	for {
		heard, err := conn.WaitForNotification(ctx)
		if err == nil && heard.Payload == s.opts.Slot {
			err = s.demanded(ctx, conn)
		}
		switch {
		case conn.IsClosed():
			return err
		case err != nil:
			return nil // the time is over, or the next look meets the error again
		}
	}
}

// demanded demands the present end of the log. The client does not say what it
// waits for: a position of another log would be in the way of later ones.
func (s *source) demanded(ctx context.Context, conn *pgx.Conn) error {
	end, err := catalog.ReadFlushed(ctx, conn)
	if err == nil {
		s.checkpointer.demand(end)
	}
	return err
}
