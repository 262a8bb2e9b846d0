package audit

import (
	"cmp"
	"encoding/binary"
	"math"
)

// Entry is a row of an outbox.
type Entry struct {
	Key Key
	// Order are the numbers that rows are ordered by, the first first.
	Order [2]int64
	// At is the time of the row in microseconds since 1970; NoTime for none.
	At int64
	Place
	// Topic is the index of the topic the row is routed to; see Topics.
	Topic uint16
}

// NoTime is the time of a row without any.
const NoTime = math.MinInt64

// Place is where a version of a row lies. It is valid within a snapshot.
type Place struct {
	Table  uint32 // the OID of the table, or of the partition
	Block  uint32
	Offset uint16
}

// entryBytes is the size of an encoded Entry.
const entryBytes = 16 + 8 + 8 + 8 + 4 + 4 + 2 + 2

func (e *Entry) encode(b []byte) {
	copy(b, e.Key[:])
	binary.LittleEndian.PutUint64(b[16:], uint64(e.Order[0]))
	binary.LittleEndian.PutUint64(b[24:], uint64(e.Order[1]))
	binary.LittleEndian.PutUint64(b[32:], uint64(e.At))
	binary.LittleEndian.PutUint32(b[40:], e.Table)
	binary.LittleEndian.PutUint32(b[44:], e.Block)
	binary.LittleEndian.PutUint16(b[48:], e.Offset)
	binary.LittleEndian.PutUint16(b[50:], e.Topic)
}

func decodeEntry(b []byte) (e Entry) {
	e.Key = Key(b[:16])
	e.Order[0] = int64(binary.LittleEndian.Uint64(b[16:]))
	e.Order[1] = int64(binary.LittleEndian.Uint64(b[24:]))
	e.At = int64(binary.LittleEndian.Uint64(b[32:]))
	e.Table = binary.LittleEndian.Uint32(b[40:])
	e.Block = binary.LittleEndian.Uint32(b[44:])
	e.Offset = binary.LittleEndian.Uint16(b[48:])
	e.Topic = binary.LittleEndian.Uint16(b[50:])
	return e
}

// compare orders entries as they are published.
func (e *Entry) compare(o *Entry) int {
	return cmp.Or(cmp.Compare(e.Order[0], o.Order[0]), cmp.Compare(e.Order[1], o.Order[1]),
		cmp.Compare(e.Table, o.Table), cmp.Compare(e.Block, o.Block), cmp.Compare(e.Offset, o.Offset))
}

// record is the id of a record, with the index of the topic whose rows it counts
// for.
type record struct {
	Key   Key
	topic uint16
}

// recordBytes is the size of an encoded record.
const recordBytes = 16 + 2

func (r record) encode() (b [recordBytes]byte) {
	copy(b[:], r.Key[:])
	binary.LittleEndian.PutUint16(b[16:], r.topic)
	return b
}

func decodeRecord(b []byte) record { return record{Key(b[:16]), binary.LittleEndian.Uint16(b[16:])} }
