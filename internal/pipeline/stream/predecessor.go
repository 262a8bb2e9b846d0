package stream

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// predecessorPoll is how often it is looked whether a predecessor is still there.
const predecessorPoll = 100 * time.Millisecond

// predecessors are the instances that show that they read the slot, though we
// have it by now. The server ended the process that sent it to them, and not
// the session beside it: by an administrator's command, or since the stream
// alone was cut off. They may not know it yet, as they are busy or suspended,
// and may still have the lease. Of an instance that has stopped or died no
// session is left.
func (s *source) predecessors(ctx context.Context, sql *pgx.Conn) ([]catalog.Reader, error) {
	if s.lease == nil {
		return nil, nil
	}
	return catalog.ReadReaders(ctx, sql, s.opts.Slot)
}

// outlive waits until none of the predecessors has the lease: its session is
// gone, which it ends after its lease, or it has asked nothing for as long as
// the lease lasts. Since we have the slot, nobody renews it.
func (s *source) outlive(ctx context.Context, sql *pgx.Conn, all []catalog.Reader) error {
	lasts := min(s.tenure.timeout(), longest)
	until := time.Now().Add(lasts)
	told := false
	for len(all) > 0 && time.Now().Before(until) {
		now, err := catalog.ReadReaders(ctx, sql, s.opts.Slot)
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(now, func(r catalog.Reader) bool {
			return r.Silent >= lasts || !slices.ContainsFunc(all, func(o catalog.Reader) bool { return o.PID == r.PID })
		})
		if len(all) == 0 {
			break
		}
		if !told {
			told = true
			const what = "another instance shows that it reads the slot, and may not know yet that it does not: waiting until it cannot write any more"
			s.log.Warn(what, zap.Int32("pid", all[0].PID), zap.Duration("at_most", lasts))
			s.health.waiting(what)
		}
		if err := backoff.Sleep(ctx, predecessorPoll); err != nil {
			return err
		}
	}
	return nil
}
