package audit

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Contents compares rows, as published now, with the records of their ids, on disk as
// an Audit. Close frees the disk. A nil Contents takes nothing.
type Contents struct {
	letters []string // the topics of dead letters, never equal to a row
	most    int      // how many differences are kept
	rows    spills
	mu      sync.Mutex // guards records
	records spills
	days    days
}

// NewContents keeps the contents in dir, and at most so many differences. letters is
// the topics of dead letters.
func NewContents(dir string, letters []string, most int) (*Contents, error) {
	rows, err := newSpills(dir, shares, rowContentBytes)
	if err != nil {
		return nil, err
	}
	records, err := newSpills(dir, shares, recordContentBytes)
	if err != nil {
		rows.close()
		return nil, err
	}
	return &Contents{letters: letters, most: most, rows: rows, records: records, days: days{index: make(map[day]uint32)}}, nil
}

// Close removes the files.
func (c *Contents) Close() {
	c.rows.close()
	c.records.close()
}

// rowContent is the content of a row.
type rowContent struct {
	Entry
	says      digest
	xid       uint32 // of the row's transaction
	committed int64  // when, or NoTime
	partition int32  // as named by the row, or transform.PartitionByKey
	day       uint32 // an index
}

const rowContentBytes = entryBytes + 16 + 4 + 8 + 4 + 4

// recordContent is the content of a record.
type recordContent struct {
	Key    Key
	counts uint16 // for rows of this topic, or Anywhere
	spot   Spot
	says   digest
	xid    uint32 // cdc-xid; 0: the record has none
	at     int64  // cdc-time, or NoTime
}

const recordContentBytes = 16 + 2 + spotBytes + 16 + 4 + 8

// row adds a row with its key and topic.
func (c *Contents) row(row *Row) error {
	if c == nil || row.Bad { // a bad event has no record to compare with
		return nil
	}
	rec := &row.Event.Record
	r := rowContent{Entry: row.Entry, says: digestOf(rec), xid: row.XID, committed: row.Committed, partition: rec.Partition,
		day: c.days.of(row.table, row.Entry.At)}
	var b [rowContentBytes]byte
	r.encode(b[:])
	rest := b[entryBytes:]
	copy(rest, r.says[:])
	binary.LittleEndian.PutUint32(rest[16:], r.xid)
	binary.LittleEndian.PutUint64(rest[20:], uint64(r.committed))
	binary.LittleEndian.PutUint32(rest[28:], uint32(r.partition))
	binary.LittleEndian.PutUint32(rest[32:], r.day)
	return c.rows[r.Key.share(shares)].write(b[:])
}

func decodeRowContent(b []byte) (r rowContent) {
	r.Entry = decodeEntry(b)
	b = b[entryBytes:]
	r.says = digest(b[:16])
	r.xid = binary.LittleEndian.Uint32(b[16:])
	r.committed = int64(binary.LittleEndian.Uint64(b[20:]))
	r.partition = int32(binary.LittleEndian.Uint32(b[28:]))
	r.day = binary.LittleEndian.Uint32(b[32:])
	return r
}

// record adds a record of the topic with the number. Several goroutines may call record.
func (c *Contents) record(rec *kgo.Record, id []byte, counts, number uint16) error {
	if c == nil || slices.Contains(c.letters, rec.Topic) {
		return nil
	}
	r := recordContent{Key: KeyOf(id), counts: counts, spot: Spot{number, rec.Partition, rec.Offset}, says: digestOf(rec), at: NoTime}
	r.xid, r.at = origin(rec)
	var b [recordContentBytes]byte
	copy(b[:], r.Key[:])
	binary.LittleEndian.PutUint16(b[16:], r.counts)
	r.spot.encode(b[18:])
	copy(b[32:], r.says[:])
	binary.LittleEndian.PutUint32(b[48:], r.xid)
	binary.LittleEndian.PutUint64(b[52:], uint64(r.at))
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.records[r.Key.share(shares)].write(b[:])
}

func decodeRecordContent(b []byte) (r recordContent) {
	r.Key = Key(b[:16])
	r.counts = binary.LittleEndian.Uint16(b[16:])
	r.spot = decodeSpot(b[18:])
	r.says = digest(b[32:48])
	r.xid = binary.LittleEndian.Uint32(b[48:])
	r.at = int64(binary.LittleEndian.Uint64(b[52:]))
	return r
}

// origin is the transaction of a record, and the time of its commit.
func origin(rec *kgo.Record) (xid uint32, at int64) {
	text, _ := transform.Header(rec.Headers, transform.HeaderXID)
	n, err := strconv.ParseUint(string(text), 10, 32)
	if err != nil {
		n = 0
	}
	text, _ = transform.Header(rec.Headers, transform.HeaderTime)
	t, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return uint32(n), NoTime
	}
	return uint32(n), t.UnixMicro()
}

// Version says whether a row was changed since the publication of a record.
type Version string

// The answers.
const (
	Unchanged Version = "unchanged" // by the transaction of the record
	Changed   Version = "changed"   // by another transaction
	Untold    Version = "unknown"   // the record does not name its transaction
)

// versionOf compares the transactions of row and record. The time of the commit also
// knows a row from behind a SAVEPOINT, with a transaction id of its own.
func (r *rowContent) versionOf(rec *recordContent) Version {
	switch {
	case r.committed != NoTime && rec.at != NoTime:
		if r.committed > rec.at {
			return Changed
		}
		return Unchanged
	case rec.xid == 0:
		return Untold
	case r.xid != rec.xid:
		return Changed
	}
	return Unchanged
}

// Difference is a row without an equal record in its topic.
type Difference struct {
	Row     Entry
	Record  Spot // the last of the records
	Version Version
}

// ContentCounts are the result of a comparison of contents.
type ContentCounts struct {
	// Compared rows have a record in their topic. Equal rows have an equal record;
	// Different rows have none; Changed rows have none, and were changed since.
	Compared, Equal, Different, Changed int64
	// Elsewhere counts rows whose only record is in another topic.
	Elsewhere int64
	// Days are the days of the rows.
	Days []Day
	// First are the first differences in the order of publication.
	First []Difference
}

// Compare compares all rows and records added before.
func (c *Contents) Compare() (ContentCounts, error) {
	counts := ContentCounts{Days: c.days.list}
	var rows []rowContent
	var records []recordContent
	for n := range shares {
		var err error
		if rows, err = load(c.rows[n], rows[:0], decodeRowContent, func(a, b rowContent) int { return byTopic(a.Entry, b.Entry) }); err != nil {
			return counts, err
		}
		if records, err = load(c.records[n], records[:0], decodeRecordContent, byPlace); err != nil {
			return counts, err
		}
		c.merge(&counts, rows, records)
	}
	counts.First = first(counts.First, c.most)
	return counts, nil
}

func byPlace(a, b recordContent) int {
	return cmp.Or(bytes.Compare(a.Key[:], b.Key[:]), cmp.Compare(a.spot.Log, b.spot.Log),
		cmp.Compare(a.spot.Partition, b.spot.Partition), cmp.Compare(a.spot.Offset, b.spot.Offset))
}

// merge compares a share of rows and records, both sorted by id.
func (c *Contents) merge(counts *ContentCounts, rows []rowContent, records []recordContent) {
	for i := range rows {
		row := &rows[i]
		for len(records) > 0 && bytes.Compare(records[0].Key[:], row.Key[:]) < 0 {
			records = records[1:]
		}
		same := 0
		for same < len(records) && records[same].Key == row.Key {
			same++
		}
		if d := counts.compare(row, records[:same]); d != nil && c.most > 0 {
			if counts.First = append(counts.First, *d); len(counts.First) >= 2*c.most {
				counts.First = first(counts.First, c.most)
			}
		}
	}
}

// first are the first differences, at most so many.
func first(all []Difference, most int) []Difference {
	slices.SortFunc(all, func(a, b Difference) int { return a.Row.compare(&b.Row) })
	return all[:min(len(all), most)]
}

// compare compares a row with the records of its id; nil: no difference.
func (n *ContentCounts) compare(row *rowContent, records []recordContent) *Difference {
	day := &n.Days[row.day]
	day.Rows++
	var last, elsewhere *recordContent
	version := Untold
	for i := range records {
		rec := &records[i]
		equal := rec.says == row.says && (row.partition < 0 || row.partition == rec.spot.Partition)
		switch {
		case rec.counts != row.Topic && rec.counts != Anywhere:
			if equal {
				elsewhere = rec
			}
		case equal:
			n.Compared++
			n.Equal++
			day.add(row, rec)
			day.Equal++
			return nil
		default:
			if told := row.versionOf(rec); told == Unchanged || version == Untold {
				version = told
			}
			last = rec
		}
	}
	switch {
	case last != nil:
		n.Compared++
		day.add(row, last)
		if version == Changed {
			n.Changed++
		} else {
			n.Different++
		}
		return &Difference{Row: row.Entry, Record: last.spot, Version: version}
	case elsewhere != nil:
		n.Elsewhere++
		return &Difference{Row: row.Entry, Record: elsewhere.spot, Version: row.versionOf(elsewhere)}
	}
	return nil
}
