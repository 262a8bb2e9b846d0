package postgres

import (
	"encoding/hex"
	"fmt"
	"time"
)

// The partitions of the partitioned table; schema_partitioned.sql says the same.
const (
	slots     = 32
	otherSlot = -1
	slotSpan  = 24 * time.Hour
)

// slotOf returns the partition of an id: the day of a UUIDv7 in canonical form,
// modulo the number of slots, or otherSlot. slotOf must never change: the same
// key would be unknown in the new partition.
func slotOf(id string) int {
	const form = "xxxxxxxx-xxxx-7xxx-xxxx-xxxxxxxxxxxx"
	if len(id) != len(form) {
		return otherSlot
	}
	for i := range len(form) {
		switch want, c := form[i], id[i]; {
		case want == 'x' && (c >= '0' && c <= '9' || c >= 'a' && c <= 'f'):
		case want != 'x' && c == want:
		default:
			return otherSlot
		}
	}
	var millis [6]byte
	_, _ = hex.Decode(millis[:4], []byte(id[:8])) // the digits were looked at
	_, _ = hex.Decode(millis[4:], []byte(id[9:13]))
	var ms int64
	for _, b := range millis {
		ms = ms<<8 | int64(b)
	}
	return slotOfTime(time.UnixMilli(ms))
}

// slotOfTime returns the slot of ids made at t.
func slotOfTime(t time.Time) int { return int(t.UnixMilli() / slotSpan.Milliseconds() % slots) }

// slotSuffix returns the suffix of the table's name in a slot's partition.
func slotSuffix(slot int) string {
	if slot == otherSlot {
		return "_other"
	}
	return fmt.Sprintf("_%02d", slot)
}
