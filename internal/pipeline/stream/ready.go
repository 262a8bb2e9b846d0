package stream

import (
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
)

// standbyAway reports whether the server sends nothing because a standby is away.
// The caller holds mu.
func (h *Health) standbyAway() bool { return h.awaited.Waiting && h.awaited.Away() != "" }

// lag is the age of the oldest committed and unconfirmed event. Log not received
// counts as an event, as it may have any. The caller holds mu.
func (h *Health) lag(now time.Time) time.Duration {
	return max(h.delivery.lag(), h.progress.unread(now), h.checkpointer.lag())
}

// Live is always nil while the process can answer: a dead broker is no reason
// to restart it.
func (h *Health) Live() error { return nil }

// Ready reports whether events flow, or would if there were any. A warm spare
// counts as ready; otherwise a rolling update would never end.
func (h *Health) Ready() (ok bool, reasons []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.role.Name != session.Active && h.role.Name != session.Standby {
		reasons = append(reasons, "role is "+h.role.Name)
	}
	if h.pgErr != "" {
		reasons = append(reasons, "PostgreSQL: "+h.pgErr)
	}
	if h.storeErr != "" {
		reasons = append(reasons, h.storeErr)
	}
	if h.claimErr != "" {
		reasons = append(reasons, h.claimErr)
	}
	if h.lacking != "" {
		reasons = append(reasons, "repairing: "+h.lacking)
	}
	if h.unfit != "" {
		reasons = append(reasons, "this spare could not take over: "+h.unfit)
	}
	if reason, _, late := h.delivery.visibility.unready(); late {
		reasons = append(reasons, reason)
	}
	reasons = append(reasons, h.kafka.Unready(h.delivery.stuck(), delivery.StuckAfter)...)
	if reason, unsaved := h.checkpointer.unready(); unsaved && h.role.Name == session.Active {
		reasons = append(reasons, reason)
	}
	now := time.Now()
	if h.standsStill(now) {
		reasons = append(reasons, h.standstill.reason(now))
	}
	if h.unbound != "" && h.role.Name == session.Active {
		reasons = append(reasons, "the next event would stop this instance: "+h.unbound)
	}
	switch h.role.Name {
	case session.Active:
		reasons = append(reasons, h.stalled(now, len(reasons) > 0)...)
	case session.Standby:
		reasons = append(reasons, h.look.Unready(h.silenceLimit)...)
		if h.orphan != 0 {
			reasons = append(reasons, h.orphanReason(now))
		}
	}
	return len(reasons) == 0, reasons
}

// standsStill reports whether session after session fails at the same position.
// A spare reads nothing. The caller holds mu.
func (h *Health) standsStill(now time.Time) bool {
	if h.role.Name == session.Standby {
		return false
	}
	h.advance(now)
	return h.standstill.lasts()
}

// failures is how many sessions have failed at the present position.
func (h *Health) failures() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.role.Name == session.Standby {
		return 0
	}
	h.advance(time.Now())
	return h.standstill.failures
}

// advance notes how far everything is now. The caller holds mu.
func (h *Health) advance(now time.Time) {
	position, read := h.tracker.Reach()
	h.standstill.see(position, read, h.flush)
	h.progress.see(now, pulse{
		flush:     h.flush,
		received:  h.received(),
		position:  position,
		confirmed: h.confirmed(),
		inFlight:  h.tracker.InFlight(),
		dealt:     h.delivery.total(),
		arrived:   h.intake.arrived(),
	})
}

// stalled lists standstills, unless the reason is known. The caller holds mu.
func (h *Health) stalled(now time.Time, known bool) (reasons []string) {
	h.advance(now)
	blind := now.Sub(h.looked)
	unanswered := min(blind, h.sender.since(now))
	switch why, silent := h.progress.stall(now), h.silent(); {
	case known:
	case silent > max(h.silenceLimit, 2*h.statusInterval) && unanswered > h.silenceLimit: // either alone may be busy
		reasons = append(reasons, fmt.Sprintf("PostgreSQL has answered neither the stream nor a look beside it for %s", min(silent, unanswered).Round(time.Second)))
	case h.standbyAway():
		reasons = append(reasons, h.awaited.String())
	case h.senderSilent(now):
		reasons = append(reasons, h.senderReason())
	case why != "" && h.awaited.Waiting:
		reasons = append(reasons, why+"; "+h.awaited.String())
	case why != "":
		reasons = append(reasons, why)
	case silent > h.statusInterval+h.progress.limit:
		reasons = append(reasons, fmt.Sprintf("the stream has been silent for %s, although the server is asked for an answer", silent.Round(time.Second)))
	}
	if !h.lease.Held() {
		reasons = append(reasons, "PostgreSQL has not shown for long that this instance still reads the slot, so nothing is written to Kafka until it does")
	}
	if blind > h.progress.limit {
		reasons = append(reasons, fmt.Sprintf("slot and publication could not be looked at for %s", blind.Round(time.Second)))
	}
	return reasons
}

// unconfirmed is how long the server has had unconfirmed log, also while out of
// reach; 0 for a spare, and before the first stream.
func (h *Health) unconfirmed() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.role.Name == session.Standby || h.confirmed() == 0 && !h.waited {
		return 0
	}
	now := time.Now()
	h.advance(now)
	return h.progress.unconfirmed(now)
}

// silent is how long the stream has waited for any message of the server.
func (h *Health) silent() time.Duration { return h.checkpointer.silent() }

// Remedies are those for the reasons of Ready, as far as they are known.
func (h *Health) Remedies() (remedies []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.remedy != "" && (h.pgErr != "" || h.storeErr != "" || h.claimErr != "" || h.unfit != "" || h.unbound != "") {
		remedies = append(remedies, h.remedy)
	}
	if _, remedy, late := h.delivery.visibility.unready(); late && remedy != "" {
		remedies = append(remedies, remedy)
	}
	if h.role.Name == session.Active && h.awaited.Waiting {
		remedies = append(remedies, h.awaited.Remedy())
	}
	if h.role.Name == session.Standby && h.orphan != 0 {
		remedies = append(remedies, h.orphanRemedy())
	}
	if h.standsStill(time.Now()) {
		remedies = append(remedies, h.standstill.remedy(h.slotName))
	}
	return append(remedies, h.kafka.Remedies()...)
}
