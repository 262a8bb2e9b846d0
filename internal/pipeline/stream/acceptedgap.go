package stream

import (
	"encoding/json"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
)

// GapStatus is an accepted gap in /status.
type GapStatus struct {
	Accepted time.Time `json:"accepted"`
	// Since is the time of the last transaction known to be published; absent: events of
	// any time may be missing.
	Since  time.Time `json:"since,omitzero"`
	From   string    `json:"from,omitempty"` // in the log that was read then
	To     string    `json:"to"`
	Reason string    `json:"reason,omitempty"`
}

// DescribeGap is the status of a gap; nil of none.
func DescribeGap(g *checkpoint.AcceptedGap) *GapStatus {
	if g == nil {
		return nil
	}
	st := &GapStatus{Accepted: g.Accepted, Since: g.Since, To: g.To.String(), Reason: g.Reason}
	if g.From != 0 {
		st.From = g.From.String()
	}
	return st
}

// GapRemedy ends an accepted gap.
const GapRemedy = "`cdc-outbox repair --publish`, beside run, publishes what is missing of it, and ends it; `cdc-outbox repair --give-up --yes` leaves out what is missing"

// gap is the accepted gap in the last checkpoint; nil: none.
func (k *checkpointer) gap() *checkpoint.AcceptedGap { return k.last().Accepted }

// notices returns the taker of a connector's messages in the stream; nil: there is no use
// for them.
func (s *source) notices(cp *checkpoint.Checkpoint) func(content []byte) {
	if cp.Accepted == nil {
		return nil
	}
	return func(content []byte) {
		var m checkpoint.Mending
		if json.Unmarshal(content, &m) == nil && m.Slot == s.opts.Slot {
			s.checkpointer.mend(m)
		}
	}
}

// mend has the next checkpoints forget the gap of the mending. The call comes before the
// end of the message's transaction, so no checkpoint from behind the message has the gap. Never
// blocks.
func (k *checkpointer) mend(m checkpoint.Mending) {
	k.mu.Lock()
	if k.current.Epoch == 0 || m.Mends(k.current.Accepted) {
		k.mending = m
	}
	k.mu.Unlock()
	session.Wake(k.wake)
}

// tellMended logs the end of the gap.
func (k *checkpointer) tellMended(gap *checkpoint.AcceptedGap) {
	k.mu.Lock()
	given := k.mending.Given && k.mending.Mends(gap)
	k.mu.Unlock()
	if given {
		k.log.Warn("the accepted gap was given up, and retention goes on: what is missing of it stays missing", zap.Stringer("gap", gap))
		return
	}
	k.log.Info("the accepted gap is mended, and retention goes on", zap.Stringer("gap", gap))
}

// tellGap warns of an accepted gap, once.
func (s *source) tellGap(cp *checkpoint.Checkpoint) {
	if cp.Accepted == nil || cp.Snapshot || s.told == cp.Accepted.ID {
		return
	}
	s.told = cp.Accepted.ID
	waits := "events of an accepted gap may be missing"
	if s.opts.Retention.After != 0 {
		waits += "; retention waits until they are published"
	}
	s.log.Warn(waits, zap.Stringer("gap", cp.Accepted), zap.String("remedy", GapRemedy))
}

// gapStatus is nil without an accepted gap, and on a spare. The caller holds mu.
func (h *Health) gapStatus() *GapStatus { return DescribeGap(h.openGap()) }

// openGap is the accepted gap, if this instance reads the slot. The caller holds mu.
func (h *Health) openGap() *checkpoint.AcceptedGap {
	if h.role.Name != session.Active {
		return nil
	}
	return h.checkpointer.gap()
}

// gapAge is how long ago the gap was accepted; 0: there is none, or this instance does not
// read the slot.
func (h *Health) gapAge() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	gap := h.openGap()
	if gap == nil {
		return 0
	}
	return max(time.Since(gap.Accepted), time.Nanosecond)
}
