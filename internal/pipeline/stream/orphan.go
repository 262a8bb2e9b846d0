package stream

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// orphan is how a spare notices that the slot's holder is the leftover process of an
// instance's connection: kept by a pooler, or unaware of a lost client. No instance
// would ever take over.
type orphan struct {
	pid    int32
	at     pg.LSN    // the confirmed position
	since  time.Time // when pid or position was new
	looked time.Time
}

// spokenFor tells readiness, after long without confirmations, whether an instance is
// behind the slot's holder.
func (s *source) spokenFor(ctx context.Context, sql *pgx.Conn, slot catalog.Slot, o *orphan) error {
	now := time.Now()
	if o.pid != slot.ActivePID || o.at != slot.ConfirmedFlush {
		*o = orphan{pid: slot.ActivePID, at: slot.ConfirmedFlush, since: now}
		s.health.heldByOrphan(0, now)
	}
	if now.Sub(o.since) < s.limits.stalled || now.Sub(o.looked) < s.limits.spareLook {
		return nil
	}
	o.looked = now
	orphaned, err := catalog.Orphaned(ctx, sql, slot.Name)
	if err != nil {
		return err
	}
	pid := int32(0)
	if orphaned {
		pid = o.pid
	}
	s.health.heldByOrphan(pid, o.since)
	return nil
}

// heldByOrphan notes a leftover holder of the slot, and since when nothing has moved;
// 0: none.
func (h *Health) heldByOrphan(pid int32, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.orphan, h.orphaned = pid, since
}

// orphanReason is why a spare beside an orphan is not ready. The caller holds mu.
func (h *Health) orphanReason(now time.Time) string {
	holder := catalog.Holder{PID: h.orphan}
	if h.holder != nil {
		holder = *h.holder
	}
	return fmt.Sprintf("slot %q is read by %s, which no running instance speaks for, and nothing has been confirmed for %s",
		h.slotName, holder, now.Sub(h.orphaned).Round(time.Second))
}

// orphanRemedy is the remedy of orphanReason. The caller holds mu.
func (h *Health) orphanRemedy() string {
	return fmt.Sprintf("SELECT pg_terminate_backend(%d); if such a process comes back: %s", h.orphan, catalog.ConnectDirectly)
}
