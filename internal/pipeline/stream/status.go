package stream

import (
	"cmp"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
)

// Status is shown at /status.
type Status struct {
	delivery.Status
	// Phase is the name of a phase.Phase.
	Phase string `json:"phase"`
	Slot  string `json:"slot"`
	// Positions are absent until this instance has read the slot.
	ReceivedLSN    string  `json:"received_lsn,omitempty"`
	ConfirmedLSN   string  `json:"confirmed_lsn,omitempty"`
	SlotLagSeconds float64 `json:"slot_lag_seconds"`
	// The server's numbers of slot and log are there only while known: not while
	// the instance stands by, nor while PostgreSQL is away.
	ServerLSN     string `json:"server_lsn,omitempty"`
	SlotLagBytes  *int64 `json:"slot_lag_bytes,omitempty"`
	RetainedBytes *int64 `json:"slot_retained_bytes,omitempty"`
	WALStatus     string `json:"wal_status,omitempty"`
	// SafeWALBytes can still be written before the server may invalidate the slot;
	// nil without a limit.
	SafeWALBytes *int64 `json:"slot_safe_wal_bytes,omitempty"`
	// SlotPID is the server's process reading the slot for the instance.
	SlotPID int32 `json:"slot_pid,omitempty"`
	// Holder is the slot's reader, while the instance stands by.
	Holder *catalog.Holder `json:"holder,omitempty"`
	// Standbys wait for the slot, while the instance reads the slot.
	Standbys []catalog.Holder `json:"standbys,omitempty"`
	// Failover is how failovers would find the slot, by server, while the instance
	// reads the slot; absent if the slot's server is alone.
	Failover []catalog.Candidate `json:"failover,omitempty"`
	// Sender is there while the process works and has been silent for long.
	Sender *SenderStatus `json:"sender,omitempty"`
	// Forecast is there while the slot keeps more and more log.
	Forecast *Forecast `json:"forecast,omitempty"`
	// Standstill is there while session after session fails at the same
	// position.
	Standstill *Standstill `json:"standstill,omitempty"`
	// Invisible is there while an event waits until its row can be read.
	Invisible *Invisible `json:"invisible,omitempty"`
	// OldestUnconfirmedSeconds is how long the server has had unconfirmed log.
	OldestUnconfirmedSeconds float64 `json:"oldest_unconfirmed_seconds"`
	// CheckpointAgeSeconds is the age of the oldest acknowledged position not
	// saved; 0 if all are. The other two tell for how long saves have failed, and
	// the store's last error.
	CheckpointAgeSeconds     float64 `json:"checkpoint_age_seconds"`
	CheckpointFailingSeconds float64 `json:"checkpoint_failing_seconds,omitempty"`
	CheckpointError          string  `json:"checkpoint_error,omitempty"`
	// Quarantine is there while events are parked.
	Quarantine *QuarantineStatus `json:"quarantine,omitempty"`
	// Gap is there while events of an accepted gap may be missing.
	Gap *GapStatus `json:"accepted_gap,omitempty"`
	// Repair is there while a repair is at work.
	Repair *RepairStatus `json:"repair,omitempty"`
	// Snapshot is there while the rows from before the slot are published.
	Snapshot *SnapshotStatus `json:"snapshot,omitempty"`
	// Retention is by table; empty while retention is off.
	Retention map[string]RetentionStatus `json:"retention,omitempty"`
}

// QuarantineStatus counts what is parked.
type QuarantineStatus struct {
	Events int64 `json:"events"`
	Keys   int64 `json:"keys"`
	Limit  int   `json:"limit"`
}

func (h *Health) received() pg.LSN { return h.checkpointer.received() }

func (h *Health) confirmed() pg.LSN { return h.checkpointer.confirmed() }

// checkpointAge is 0 for a spare: another instance publishes unsaved events again.
func (h *Health) checkpointAge() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.role.Name == session.Standby {
		return 0
	}
	return h.checkpointer.age()
}

func (h *Health) inFlight() int64 { return int64(h.tracker.InFlight()) }

// Status returns a Status.
func (h *Health) Status() any {
	unconfirmed, age := h.unconfirmed(), h.checkpointAge()
	received, confirmed := h.received(), h.confirmed()
	failing, saveErr := h.checkpointer.trouble()
	h.mu.Lock()
	defer h.mu.Unlock()
	st := Status{
		Status: h.kafka.Complete(delivery.Status{
			Role: h.role.Name, RoleSince: h.role.Since, PostgresError: h.pgErr, LastEvent: h.delivery.last(),
			InFlightEvents: h.inFlight(), InFlightBytes: h.queue.bytes(), UnackedSeconds: h.delivery.stuck().Seconds(),
		}),
		Phase:          h.phase.Now().String(),
		Slot:           h.slotName,
		Holder:         h.holder,
		Standbys:       h.standbys,
		Failover:       h.candidates,
		ReceivedLSN:    pg.LSNText(received),
		ConfirmedLSN:   pg.LSNText(confirmed),
		SlotLagSeconds: h.lag(time.Now()).Seconds(),
		Standstill:     h.standstill.status(time.Now()),
		Sender:         h.senderStatus(time.Now()),
		Retention:      h.retention.status(),
		Invisible:      h.delivery.visibility.status(),
		Quarantine:     h.delivery.quarantined(),
		Repair:         h.repairStatus(),
		Gap:            h.gapStatus(),
		Snapshot:       h.snapshotStatus(),

		OldestUnconfirmedSeconds: unconfirmed.Seconds(),
		CheckpointAgeSeconds:     age.Seconds(),
		CheckpointError:          cmp.Or(saveErr, h.storeErr),
	}
	if saveErr != "" || failing > unsavedAfter {
		st.CheckpointFailingSeconds = failing.Seconds()
	}
	if h.known {
		lag, retained := max(0, int64(h.flush)-int64(confirmed)), keeps(h.slot, h.flush)
		st.ServerLSN, st.SlotLagBytes, st.RetainedBytes = h.flush.String(), &lag, &retained
		st.WALStatus = h.slot.WALStatus
		st.SafeWALBytes, st.SlotPID = h.slot.SafeWALSize, h.slot.ActivePID
		st.Forecast = h.trend.forecast(h.slot.SafeWALSize, h.heldBack())
	}
	return st
}

// heldBack names the cause that holds the slot back. The caller holds mu.
func (h *Health) heldBack() string {
	if h.keptBy != "" {
		return h.keptBy
	}
	return fmt.Sprintf("this connector: what pid %d sends it is not confirmed", h.slot.ActivePID)
}

// keeps is how many bytes of log the slot keeps.
func keeps(slot catalog.Slot, flush pg.LSN) int64 {
	return max(0, int64(flush)-int64(slot.RestartLSN))
}
