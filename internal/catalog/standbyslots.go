package catalog

import (
	"context"
	"fmt"
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

// String describes the wait.
func (w StandbyWait) String() string {
	if away := w.Away(); away != "" {
		return "PostgreSQL sends nothing that the standbys in synchronized_standby_slots do not have: slot " + away
	}
	names := make([]string, len(w.Slots))
	for i, s := range w.Slots {
		names[i] = s.Name
	}
	return "PostgreSQL waits until the standbys in synchronized_standby_slots have the log that it is to send: " + strings.Join(names, ", ")
}

// Remedy ends the wait.
func (w StandbyWait) Remedy() string {
	return "start the standby, or have it read its slot (primary_slot_name); if it will not come back, name the slots of the standbys that are there: " +
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
		       EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'WaitForStandbyConfirmation')
		  FROM named n LEFT JOIN pg_replication_slots s ON s.slot_name = n.name
		 WHERE n.name <> ''`, pid)
	w.Slots, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (s StandbySlot, err error) {
		return s, row.Scan(&s.Name, &s.Exists, &s.Physical, &s.Active, &s.Lost, &w.Waiting)
	})
	if err != nil {
		return StandbyWait{}, fmt.Errorf("read synchronized_standby_slots: %w", err)
	}
	return w, nil
}
