// Package catchup tells when all events that were committed before a moment are
// published. In the log that is a position, and the proof is the confirmed
// position of the connector's slot: the connector confirms what the brokers have
// acknowledged, dead letters included, after the checkpoint is saved. In a
// polled table it is the set of rows that are visible and not marked.
//
// A transaction counts as committed before if its commit was carried out before
// the first look began. A transaction that is still open then is not waited for.
//
// Invariants:
//
//  1. A position is compared with the slot only on the same server, database and
//     timeline, and with a slot that only its reader has moved.
//
//  2. The answer of a standby counts for nothing.
//
// Non-goals: connections, pauses, deadlines: those are the caller's.
package catchup

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// Channel is the channel of the notifications that ask the instance reading a
// slot to confirm its position at once. The payload is the slot's name. Without
// one, an instance confirms the position of an idle outbox every five seconds.
const Channel = "cdc_outbox_wait"

// LookSQL looks at the slot $1, in a single row and column for Parse. With $2 it
// asks the reader, too: the notification is a transaction of its own, which has
// everything before it written to disk soon, and the walsender tell of it. The
// end of the log is that of the insertions, because a commit with
// synchronous_commit off is visible before it is on disk. No part needs a
// privilege.
const LookSQL = `SELECT jsonb_build_object(
	'system', (SELECT system_identifier::text FROM pg_control_system()),
	'database', current_database(),
	'timeline', CASE WHEN NOT pg_is_in_recovery() THEN substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END,
	'end', CASE WHEN NOT pg_is_in_recovery() THEN (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::text END,
	'asked', CASE WHEN $2::bool AND NOT pg_is_in_recovery() THEN pg_notify('` + Channel + `', $1::text)::text END,
	'slot', (SELECT to_jsonb(s) || jsonb_build_object('confirmed', (confirmed_flush_lsn - '0/0'::pg_lsn)::text)
	           FROM pg_replication_slots s WHERE slot_name = $1::text))::text`

// Look is an answer to LookSQL.
type Look struct {
	System   string    `json:"system"`
	Database string    `json:"database"`
	Timeline string    `json:"timeline"` // empty on a standby
	End      Position  `json:"end"`      // of the log
	Slot     *SlotLook `json:"slot"`     // nil: there is none
}

// SlotLook is a row of pg_replication_slots.
type SlotLook struct {
	Confirmed  Position `json:"confirmed"` // 0 while the slot is being created
	Active     bool     `json:"active"`
	ActivePID  int32    `json:"active_pid"`
	Type       string   `json:"slot_type"`
	Database   string   `json:"database"`
	WALStatus  string   `json:"wal_status"`
	Invalid    string   `json:"invalidation_reason"` // 17
	Conflicted bool     `json:"conflicting"`         // 16
}

// Position is one in the log.
type Position uint64

// String is PostgreSQL's form.
func (p Position) String() string { return fmt.Sprintf("%X/%X", uint64(p)>>32, uint32(p)) }

// UnmarshalJSON implements json.Unmarshaler, of a decimal number in quotes.
func (p *Position) UnmarshalJSON(b []byte) error {
	var text *string
	if err := json.Unmarshal(b, &text); err != nil || text == nil {
		return err
	}
	n, err := strconv.ParseUint(*text, 10, 64)
	*p = Position(n)
	return err
}

// Parse reads the answer.
func Parse(answer []byte) (l Look, err error) {
	if err = json.Unmarshal(answer, &l); err != nil {
		return Look{}, fmt.Errorf("read the answer about the slot: %w", err)
	}
	return l, nil
}

// Wait judges looks at a slot, one after the other. It is for a single
// goroutine.
type Wait struct {
	Slot string
	// Target is the position to reach; 0: the end of the log at the first look.
	Target Position
	// Last is the last look.
	Last Look

	begun bool
}

// remedyGone is for a slot from which nothing can be awaited.
const remedyGone = "cdc-outbox status says what became of the slot; docs/runbook/exit-code-3.md says how to go on"

// Take reports whether everything before the target is published. Its errors
// have a class: failure.Transient where another server may answer the next
// time, failure.Config for a mistake, failure.Loss where this wait can never
// be told of its events.
func (w *Wait) Take(l Look) (reached bool, err error) {
	if l.Timeline == "" {
		return false, w.onStandby()
	}
	before, begun := w.Last, w.begun
	if err := w.sameLog(l); err != nil {
		return false, err
	}
	if err := w.usable(l); err != nil {
		return false, err
	}
	w.Last, w.begun = l, true
	slot := l.Slot
	if begun && slot.Confirmed > before.Slot.Confirmed && !slot.Active && !before.Slot.Active {
		return false, failure.Lossf(remedyGone, "slot %q went from %s to %s while nobody read it: it was made anew or moved by hand, so it does not tell what was published",
			w.Slot, before.Slot.Confirmed, slot.Confirmed)
	}
	// A slot made anew between two looks has no reader yet, and a reader of ours
	// would refuse it.
	return slot.Confirmed >= w.Target && (slot.Active || !begun), nil
}

func (w *Wait) onStandby() error {
	err := failure.Error{Remedy: "connect to the primary: add target_session_attrs=read-write to the URL, and list all hosts there",
		Err: fmt.Errorf("the server is a standby, where the slot %q is not read", w.Slot)}
	if !w.begun {
		err.Class = failure.Config
	}
	return &err
}

// sameLog returns why the target is no position in the look's log, if so. At the
// first look it sets a target.
func (w *Wait) sameLog(l Look) error {
	const again = "repeat the wait: it is then for a position of this server"
	switch {
	case !w.begun && w.Target == 0:
		w.Target = l.End
	case !w.begun && w.Target > l.End:
		return failure.Configf("take the position from this server: SELECT pg_current_wal_insert_lsn()",
			"position %s lies beyond the end of the log, %s: it is of another server", w.Target, l.End)
	case !w.begun:
	case l.System != w.Last.System:
		return failure.Lossf(again, "another server answers: its system identifier is %s, and it was %s when the wait began", l.System, w.Last.System)
	case l.Database != w.Last.Database:
		return failure.Lossf(again, "another database answers: %s, and it was %s when the wait began", l.Database, w.Last.Database)
	case l.Timeline != w.Last.Timeline:
		return failure.Lossf(again, "the server went from timeline %s to %s during the wait, as after a failover: it may lack commits from before, and positions of the two cannot be compared", w.Last.Timeline, l.Timeline)
	case w.Target > l.End:
		return failure.Lossf(again, "the log ends at %s now, before %s: the server was set back", l.End, w.Target)
	}
	return nil
}

// usable returns why the slot can tell nothing, if so.
func (w *Wait) usable(l Look) error {
	s := l.Slot
	switch {
	case s == nil && w.begun:
		return failure.Lossf(remedyGone, "slot %q was dropped during the wait", w.Slot)
	case s == nil:
		return failure.Lossf("correct the name, which is source.slot of the connector; before its first start: cdc-outbox setup", "slot %q does not exist", w.Slot)
	case s.Type != "logical":
		return failure.Configf("name the slot that is source.slot of the connector", "slot %q is a %s slot", w.Slot, s.Type)
	case s.Database != l.Database:
		return failure.Configf("connect to the database of the slot", "slot %q belongs to database %q, not to %q", w.Slot, s.Database, l.Database)
	case s.Invalid != "":
		return failure.Lossf(remedyGone, "slot %q is lost: %s", w.Slot, s.Invalid)
	case s.WALStatus == "lost", s.Conflicted:
		return failure.Lossf(remedyGone, "slot %q is lost", w.Slot)
	}
	return nil
}

// Behind is how many bytes of the log are to be confirmed yet.
func (w *Wait) Behind() int64 {
	if w.Last.Slot == nil || w.Last.Slot.Confirmed >= w.Target {
		return 0
	}
	return int64(w.Target - w.Last.Slot.Confirmed)
}

// Describe says how far the slot is.
func (w *Wait) Describe() string {
	slot := w.Last.Slot
	switch {
	case slot == nil:
		return ""
	case slot.Confirmed == 0:
		return fmt.Sprintf("slot %q is still being created, which waits for every open transaction", w.Slot)
	case !slot.Active && slot.Confirmed >= w.Target:
		return fmt.Sprintf("slot %q is at %s, and nobody reads it who could vouch for that", w.Slot, slot.Confirmed)
	case !slot.Active:
		return fmt.Sprintf("nobody reads slot %q, which is at %s, %d bytes before %s", w.Slot, slot.Confirmed, w.Behind(), w.Target)
	}
	return fmt.Sprintf("slot %q is read by process %d, and is at %s, %d bytes before %s", w.Slot, slot.ActivePID, slot.Confirmed, w.Behind(), w.Target)
}
