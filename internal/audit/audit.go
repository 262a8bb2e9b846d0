package audit

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// shares is the number of parts that ids are divided into. Of each set, one
// part is in memory at a time: of 100 million rows, 60 MiB.
const shares = 128

// Audit collects the rows of a table and the ids of records, and compares them.
// Close frees the disk.
type Audit struct {
	rows    spills
	mu      sync.Mutex // guards records
	records spills
	missing sorter
	alone   func(*Entry) error
}

// Alone has Compare call fn with each record, but those without a spot, that counts
// for no row: its key, its topic, and the spot as Place.Table and Order[1].
func (a *Audit) Alone(fn func(*Entry) error) { a.alone = fn }

// New keeps the ids in dir; "" is the system's directory for such files.
func New(dir string) (*Audit, error) {
	rows, err := newSpills(dir, shares, entryBytes)
	if err != nil {
		return nil, err
	}
	records, err := newSpills(dir, shares, recordBytes)
	if err != nil {
		rows.close()
		return nil, err
	}
	return &Audit{rows: rows, records: records, missing: sorter{dir: dir, chunk: chunk}}, nil
}

// Close removes the files.
func (a *Audit) Close() {
	a.rows.close()
	a.records.close()
	a.missing.close()
}

// Row adds a row. A single goroutine calls it.
func (a *Audit) Row(e *Entry) error {
	var item [entryBytes]byte
	e.encode(item[:])
	return a.rows[e.Key.share(shares)].write(item[:])
}

// Anywhere is the topic of a record for rows of any topic.
const Anywhere = math.MaxUint16

// Record adds the id of a record, which counts for rows of the topic. It may be
// called from several goroutines, also beside Row.
func (a *Audit) Record(id []byte, topic uint16, at Spot) error {
	r := record{KeyOf(id), topic, at}
	item := r.encode()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.records[r.Key.share(shares)].write(item[:])
}

// Counts are the result of a comparison.
type Counts struct {
	// Unknown has the rows of which nothing is known, and all but one of the rows
	// without a record that share id and topic, Twins.
	Rows, Found, Missing, Unknown, Twins int64
	// Records is the number of records read, Repeated how many of them have id
	// and topic of another.
	Records, Repeated int64
	// RowSum and FoundSum are the sums of the ids of the rows, and of those that
	// records have, whatever the order; an id counts once for each topic.
	RowSum, FoundSum Sum
}

// Sum adds ids up. Equal sums are those of equal sets, but for a chance of 2^-128.
type Sum [2]uint64

// add adds an id once in the set.
func (s *Sum) add(k Key) {
	hash := sha256.Sum256(k[:]) // sums of the ids themselves are equal for many other sets
	var carry uint64
	s[1], carry = bits.Add64(s[1], binary.BigEndian.Uint64(hash[8:]), 0)
	s[0], _ = bits.Add64(s[0], binary.BigEndian.Uint64(hash[:]), carry)
}

// String is the sum in hexadecimal digits.
func (s Sum) String() string { return fmt.Sprintf("%016x%016x", s[0], s[1]) }

// Compare compares all that was added; no Row or Record follows. known tells of
// a row without a record whether it is missing; otherwise it is unknown.
func (a *Audit) Compare(known func(*Entry) bool) (Counts, error) {
	c := Counts{Rows: a.rows.items(), Records: a.records.items()}
	var rows []Entry
	var records []record
	for n := range shares {
		var err error
		if rows, err = load(a.rows[n], rows[:0], decodeEntry, byTopic); err != nil {
			return c, err
		}
		if records, err = load(a.records[n], records[:0], decodeRecord, recordsByTopic); err != nil {
			return c, err
		}
		if err := a.merge(&c, rows, records, known); err != nil {
			return c, err
		}
	}
	return c, nil
}

// merge compares one share of rows and records, both sorted by id and topic.
func (a *Audit) merge(c *Counts, rows []Entry, records []record, known func(*Entry) bool) error {
	distinct := slices.CompactFunc(records, record.same)
	c.Repeated += int64(len(records) - len(distinct))
	if a.alone != nil {
		if err := a.lone(rows, distinct); err != nil {
			return err
		}
	}
	for i := range rows {
		row := &rows[i]
		for len(distinct) > 0 && bytes.Compare(distinct[0].Key[:], row.Key[:]) < 0 {
			distinct = distinct[1:]
		}
		first := i == 0 || rows[i-1].Key != row.Key || rows[i-1].Topic != row.Topic
		if first {
			c.RowSum.add(row.Key)
		}
		switch {
		case has(distinct, row):
			c.Found++
			if first {
				c.FoundSum.add(row.Key)
			}
		case !known(row):
			c.Unknown++
		case !first:
			c.Unknown++
			c.Twins++
		default:
			c.Missing++
			if err := a.missing.add(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// lone finds the records without a row.
func (a *Audit) lone(rows []Entry, records []record) error {
	for _, r := range records {
		if r.spot == NoSpot {
			continue
		}
		_, found := slices.BinarySearchFunc(rows, r, func(row Entry, r record) int {
			order := bytes.Compare(row.Key[:], r.Key[:])
			if order == 0 && r.topic != Anywhere {
				order = cmp.Compare(row.Topic, r.topic)
			}
			return order
		})
		e := Entry{Key: r.Key, Topic: r.spot.Log, Order: [catalog.OrderNumbers]int64{int64(r.spot.Log), r.spot.Offset}, At: NoTime, Place: Place{Table: uint32(r.spot.Partition)}}
		if !found {
			if err := a.alone(&e); err != nil {
				return err
			}
		}
	}
	return nil
}

// has tells whether a record at the front counts for the row.
func has(records []record, row *Entry) bool {
	for _, r := range records {
		switch {
		case r.Key != row.Key:
			return false
		case r.topic == row.Topic, r.topic == Anywhere:
			return true
		}
	}
	return false
}

// Missing calls fn with the missing rows in the order of their publication, up
// to the first error. It follows Compare, and may be called again.
func (a *Audit) Missing(fn func(*Entry) error) error { return a.missing.each(fn) }

// load appends a share's items to the slice, and sorts them.
func load[T any](s *spill, into []T, decode func([]byte) T, compare func(a, b T) int) ([]T, error) {
	c, err := s.cursor()
	if err != nil {
		return nil, err
	}
	for {
		item, err := c.next()
		if item == nil {
			slices.SortFunc(into, compare)
			return into, err
		}
		into = append(into, decode(item))
	}
}

func byTopic(a, b Entry) int {
	return cmp.Or(bytes.Compare(a.Key[:], b.Key[:]), cmp.Compare(a.Topic, b.Topic), a.compare(&b))
}

func recordsByTopic(a, b record) int {
	return cmp.Or(bytes.Compare(a.Key[:], b.Key[:]), cmp.Compare(a.topic, b.topic))
}
