package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// StandbySlot is a slot named by synchronized_standby_slots (PostgreSQL 17): a
// failover slot is sent only the log its standby already has.
type StandbySlot struct {
	Name     string
	Exists   bool
	Physical bool
	Active   bool // read by a standby
	Lost     bool // invalidated
	// Behind is how much log its standby has not confirmed; 0 on a standby, and
	// without a slot.
	Behind int64

	confirmed int64 // position of its standby
}

// Away says why nothing will get through because of the slot; "" if its standby
// is there, and at most behind.
func (s StandbySlot) Away() string {
	switch {
	case !s.Exists:
		return fmt.Sprintf("%q does not exist", s.Name)
	case !s.Physical:
		return fmt.Sprintf("%q is a logical slot, and not one of a standby", s.Name)
	case s.Lost:
		return fmt.Sprintf("%q is invalidated", s.Name)
	case !s.Active:
		return fmt.Sprintf("%q is read by no standby", s.Name)
	}
	return ""
}

// StandbyWait is a failover slot's wait for standbys.
type StandbyWait struct {
	Slots   []StandbySlot
	Waiting bool // the process sending our slot waits for them now
}

// Away names the slots nothing gets past; "" for none.
func (w StandbyWait) Away() string {
	var away []string
	for _, s := range w.Slots {
		if text := s.Away(); text != "" {
			away = append(away, text)
		}
	}
	return strings.Join(away, ", ")
}

// Same reports whether no standby has come on between two looks, and the slot
// waits at both.
func (w StandbyWait) Same(before StandbyWait) bool {
	return w.Waiting && before.Waiting && slices.EqualFunc(w.Slots, before.Slots, func(a, b StandbySlot) bool {
		return a.Name == b.Name && a.confirmed == b.confirmed
	})
}

// String describes the wait.
func (w StandbyWait) String() string {
	if away := w.Away(); away != "" {
		return "PostgreSQL sends nothing that the standbys in synchronized_standby_slots do not have: slot " + away
	}
	names := make([]string, len(w.Slots))
	for i, s := range w.Slots {
		names[i] = fmt.Sprintf("%s, %d bytes behind", s.Name, s.Behind)
	}
	return "PostgreSQL waits until the standbys in synchronized_standby_slots have the log that it is to send: " + strings.Join(names, "; ")
}

// Remedy ends the wait.
func (w StandbyWait) Remedy() string {
	remedy := "start the standby, or have it read its slot (primary_slot_name)"
	if w.Away() == "" {
		remedy = "find out what holds up the standby (its log; a full disk)"
	}
	return remedy + "; if it will not come back, name the slots of the standbys that are there: " +
		"ALTER SYSTEM SET synchronized_standby_slots = '…'; SELECT pg_reload_conf(); (a failover to a standby that is not named may lose events)"
}

// ReadStandbyWait reads the slot's wait: nothing for a slot without failover,
// and before PostgreSQL 17. An error in the setting's names shows as a missing
// slot.
func ReadStandbyWait(ctx context.Context, conn *pgx.Conn, slot Slot) (w StandbyWait, err error) {
	if !slot.Failover {
		return w, nil
	}
	return readStandbyWait(ctx, conn, slot.ActivePID)
}

// ReadStandbySlots reads the wait of a failover slot still to be created.
func ReadStandbySlots(ctx context.Context, conn *pgx.Conn) (StandbyWait, error) {
	return readStandbyWait(ctx, conn, 0)
}

func readStandbyWait(ctx context.Context, conn *pgx.Conn, pid int32) (w StandbyWait, err error) {
	rows, _ := conn.Query(ctx, `
		WITH named AS (
			SELECT btrim(n, ' "') AS name
			  FROM unnest(string_to_array(current_setting('synchronized_standby_slots', true), ',')) n
		)
		SELECT n.name, s.slot_name IS NOT NULL, COALESCE(s.slot_type = 'physical', false), COALESCE(s.active, false),
		       COALESCE(s.wal_status = 'lost', false),
		       CASE WHEN pg_is_in_recovery() THEN 0 ELSE GREATEST(0, COALESCE(pg_current_wal_flush_lsn() - s.restart_lsn, 0)) END::bigint,
		       COALESCE(s.restart_lsn - '0/0'::pg_lsn, 0)::bigint,
		       EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'WaitForStandbyConfirmation')
		  FROM named n LEFT JOIN pg_replication_slots s ON s.slot_name = n.name
		 WHERE n.name <> ''`, pid)
	w.Slots, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (s StandbySlot, err error) {
		return s, row.Scan(&s.Name, &s.Exists, &s.Physical, &s.Active, &s.Lost, &s.Behind, &s.confirmed, &w.Waiting)
	})
	if err != nil {
		return StandbyWait{}, fmt.Errorf("read synchronized_standby_slots: %w", err)
	}
	return w, nil
}
