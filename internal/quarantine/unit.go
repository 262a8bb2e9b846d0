package quarantine

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Unit is a topic and a key, the unit of order. An event without a topic or without a key is
// a unit of its own: nothing is known to follow it.
type Unit [sha256.Size]byte

// UnitOf is the unit of an event; alone: the event is its own.
func UnitOf(ev *transform.Event) (unit Unit, alone bool) {
	key, _ := ev.Plain()
	if ev.Record.Topic == "" || len(key) == 0 {
		return Unit{}, true
	}
	return sum([]byte(ev.Record.Topic), key), false
}

// identity is equal for two readings of the same event.
type identity [sha256.Size]byte

func identify(unit Unit, ev *transform.Event) identity {
	var position [12]byte
	binary.BigEndian.PutUint64(position[:], uint64(ev.Position.CommitLSN))
	binary.BigEndian.PutUint32(position[8:], ev.Position.Seq)
	_, value := ev.Plain()
	return sum(unit[:], []byte(ev.Table), ev.ID, position[:], value)
}

// sum allocates nothing for parts of usual size: it is asked for each event while any is parked.
func sum(parts ...[]byte) [sha256.Size]byte {
	var room [512]byte
	all := room[:0]
	for _, part := range parts {
		all = binary.BigEndian.AppendUint64(all, uint64(len(part)))
		all = append(all, part...)
	}
	return sha256.Sum256(all)
}
