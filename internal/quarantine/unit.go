package quarantine

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Unit is a topic and a key, the unit of order. An event without a topic or without a key is
// a unit of its own: nothing is known to follow it.
type Unit hash

// UnitOf is the unit of an event; alone: the event is its own.
func UnitOf(ev *transform.Event) (unit Unit, alone bool) {
	key, _ := ev.Plain()
	if ev.Record.Topic == "" || len(key) == 0 {
		return Unit{}, true
	}
	return Unit(sum([]byte(ev.Record.Topic), key)), false
}

// identity is equal for two readings of the same event.
type identity hash

func identify(unit Unit, ev *transform.Event) identity {
	var position [12]byte
	binary.BigEndian.PutUint64(position[:], uint64(ev.Position.CommitLSN))
	binary.BigEndian.PutUint32(position[8:], ev.Position.Seq)
	_, value := ev.Plain()
	plain := kgo.Record{Value: value, Headers: ev.Record.Headers}
	return identity(sum(unit[:], []byte(ev.Table), ev.ID, position[:], transform.Fingerprint(&plain)))
}

// hash is the first half of a SHA-256, enough to tell apart all events of a stream: a Set keeps
// three for each parked event.
type hash [sha256.Size / 2]byte

// sum allocates nothing for parts of usual size: it is asked for each event while any is parked.
func sum(parts ...[]byte) hash {
	var room [512]byte
	all := room[:0]
	for _, part := range parts {
		all = binary.BigEndian.AppendUint64(all, uint64(len(part)))
		all = append(all, part...)
	}
	whole := sha256.Sum256(all)
	return hash(whole[:len(hash{})])
}
