package audit

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// Entry is a row of an outbox.
type Entry struct {
	Key Key
	// Order are the numbers that rows are ordered by, the first first.
	Order [catalog.OrderNumbers]int64
	// Command numbers the statement among those of the row's transaction. It orders
	// rows with equal numbers, before their places.
	Command uint32
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
const entryBytes = 16 + 8*catalog.OrderNumbers + 8 + 4 + 4 + 4 + 2 + 2

func (e *Entry) encode(b []byte) {
	copy(b, e.Key[:])
	for i, n := range e.Order {
		binary.LittleEndian.PutUint64(b[16+8*i:], uint64(n))
	}
	b = b[16+8*len(e.Order):]
	binary.LittleEndian.PutUint64(b, uint64(e.At))
	binary.LittleEndian.PutUint32(b[8:], e.Command)
	binary.LittleEndian.PutUint32(b[12:], e.Table)
	binary.LittleEndian.PutUint32(b[16:], e.Block)
	binary.LittleEndian.PutUint16(b[20:], e.Offset)
	binary.LittleEndian.PutUint16(b[22:], e.Topic)
}

func decodeEntry(b []byte) (e Entry) {
	e.Key = Key(b[:16])
	for i := range e.Order {
		e.Order[i] = int64(binary.LittleEndian.Uint64(b[16+8*i:]))
	}
	b = b[16+8*len(e.Order):]
	e.At = int64(binary.LittleEndian.Uint64(b))
	e.Command = binary.LittleEndian.Uint32(b[8:])
	e.Table = binary.LittleEndian.Uint32(b[12:])
	e.Block = binary.LittleEndian.Uint32(b[16:])
	e.Offset = binary.LittleEndian.Uint16(b[20:])
	e.Topic = binary.LittleEndian.Uint16(b[22:])
	return e
}

// compare orders entries as they are published.
func (e *Entry) compare(o *Entry) int {
	return cmp.Or(slices.Compare(e.Order[:], o.Order[:]), cmp.Compare(e.Command, o.Command),
		cmp.Compare(e.Table, o.Table), cmp.Compare(e.Block, o.Block), cmp.Compare(e.Offset, o.Offset))
}

// Spot is where a record is.
type Spot struct {
	Log       uint16 // the index of the topic; see Topics
	Partition int32
	Offset    int64
}

// NoSpot is that of a record that is no news if no row has its id.
var NoSpot = Spot{Partition: -1, Offset: -1}

// spotBytes is the size of an encoded Spot.
const spotBytes = 2 + 4 + 8

func (s Spot) encode(b []byte) {
	binary.LittleEndian.PutUint16(b, s.Log)
	binary.LittleEndian.PutUint32(b[2:], uint32(s.Partition))
	binary.LittleEndian.PutUint64(b[6:], uint64(s.Offset))
}

func decodeSpot(b []byte) Spot {
	return Spot{binary.LittleEndian.Uint16(b), int32(binary.LittleEndian.Uint32(b[2:])), int64(binary.LittleEndian.Uint64(b[6:]))}
}

// record is the id of a record, with the index of the topic whose rows it counts
// for.
type record struct {
	Key   Key
	topic uint16
	spot  Spot
}

// same tells whether the records count for the same rows.
func (r record) same(o record) bool { return r.Key == o.Key && r.topic == o.topic }

// recordBytes is the size of an encoded record.
const recordBytes = 16 + 2 + spotBytes

func (r record) encode() (b [recordBytes]byte) {
	copy(b[:], r.Key[:])
	binary.LittleEndian.PutUint16(b[16:], r.topic)
	r.spot.encode(b[18:])
	return b
}

func decodeRecord(b []byte) record {
	return record{Key(b[:16]), binary.LittleEndian.Uint16(b[16:]), decodeSpot(b[18:])}
}
