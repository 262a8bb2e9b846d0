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

// predecessorPoll is the time between two looks for predecessors.
const predecessorPoll = 100 * time.Millisecond

// predecessors are the instances still shown as readers of the slot, though we have
// the slot by now. The server ended their sending process, and not the session
// beside it: by an administrator's command, or since the stream alone was cut off.
// They may not know yet, while busy or suspended, and may still have the lease. A
// stopped or dead instance has no session.
func (s *source) predecessors(ctx context.Context, sql *pgx.Conn) ([]catalog.Reader, error) {
	if s.lease == nil {
		return nil, nil
	}
	return catalog.ReadReaders(ctx, sql, s.opts.Slot)
}

// outlive waits until no predecessor has the lease: the session beside its stream is
// gone, as an instance ends the lease first, or has asked nothing for as long as the
// lease lasts. Since we have the slot, nobody renews the lease.
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
			s.health.waiting(what, "")
		}
		if err := backoff.Sleep(ctx, predecessorPoll); err != nil {
			return err
		}
	}
	return nil
}
