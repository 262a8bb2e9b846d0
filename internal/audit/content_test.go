package audit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// said is a record with the headers, as name and value in turn; a value of "null" is a null.
func said(key, value string, headers ...string) *kgo.Record {
	text := func(s string) []byte {
		if s == "null" {
			return nil
		}
		return []byte(s)
	}
	r := &kgo.Record{Topic: "t", Partition: 3, Key: text(key), Value: text(value)}
	for pair := range slices.Chunk(headers, 2) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: pair[0], Value: text(pair[1])})
	}
	return r
}

func TestDiffering(t *testing.T) {
	row := said("k", "v", "id", "1", "eventType", "T", "a", "x", "a", "y")
	row.Partition = transform.PartitionByKey
	for name, c := range map[string]struct {
		rec  *kgo.Record
		want []string
	}{
		"as the row":    {said("k", "v", "id", "1", "eventType", "T", "a", "x", "a", "y"), nil},
		"positions":     {said("k", "v", "id", "1", "eventType", "T", "a", "x", "a", "y", "cdc-lsn", "0/1", "cdc-seq", "0", "cdc-xid", "7", "cdc-time", "t", "cdc-tx-total", "1", "cdc-timestamp", "t"), nil},
		"marks":         {said("k", "v", "id", "1", "eventType", "T", "a", "x", "a", "y", "cdc-repair", "t", "cdc-replay", "n", "cdc-redrive", "0/1"), nil},
		"other order":   {said("k", "v", "a", "x", "eventType", "T", "a", "y", "id", "1"), nil},
		"order of one":  {said("k", "v", "id", "1", "eventType", "T", "a", "y", "a", "x"), []string{"header a"}},
		"key":           {said("K", "v", "id", "1", "eventType", "T", "a", "x", "a", "y"), []string{"key"}},
		"tombstone":     {said("k", "null", "id", "1", "eventType", "T", "a", "x", "a", "y"), []string{"value"}},
		"lost header":   {said("k", "v", "id", "1", "a", "x", "a", "y"), []string{"header eventType"}},
		"added header":  {said("k", "v", "id", "1", "eventType", "T", "a", "x", "a", "y", "b", "null"), []string{"header b"}},
		"event's time":  {said("k", "v", "id", "1", "eventType", "T", "a", "x", "a", "y", "ce_time", "2026-08-01T12:00:00.250000Z"), nil},
		"null header":   {said("k", "v", "id", "1", "eventType", "null", "a", "x", "a", "y"), []string{"header eventType"}},
		"empty, not no": {said("k", "v", "id", "1", "eventType", "", "a", "x", "a", "y"), []string{"header eventType"}},
		"all":           {said("", "", "id", "2"), []string{"key", "value", "header a", "header eventType", "header id"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.rec.Topic = "t"
			if got := Differing(row, c.rec); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			if equal := digestOf(row) == digestOf(c.rec); equal != (len(c.want) == 0) {
				t.Errorf("the digests are equal: %v", equal)
			}
		})
	}
	placed := said("k", "v")
	if got := Differing(placed, &kgo.Record{Topic: "u", Partition: 2, Key: []byte("k"), Value: []byte("v")}); !slices.Equal(got, []string{"topic", "partition"}) {
		t.Errorf("%q", got)
	}
}

// A row does not know the time of its commit, which a CloudEvent has.
func TestTheTimeOfACloudEventIsNotCompared(t *testing.T) {
	const of = "application/cloudevents+json; charset=UTF-8"
	row := said("k", `{"specversion":"1.0","id":"1","data":{"time":"a","b":1}}`, "content-type", of)
	for value, equal := range map[string]bool{
		`{"specversion":"1.0","time":"2026-08-01T12:00:00.250000Z","id":"1","data":{"time":"a","b":1}}`: true,
		`{"specversion":"1.0","time":"2026-08-01T12:00:00.250000Z","id":"1","data":{"time":"b","b":1}}`: false,
		`{"specversion":"1.0","id":"2","data":{"time":"a","b":1}}`:                                      false,
	} {
		rec := said("k", value, "content-type", of)
		if got := len(Differing(row, rec)) == 0; got != equal || (digestOf(row) == digestOf(rec)) != equal {
			t.Errorf("equal to %s: %t, want %t", value, got, equal)
		}
	}
	if plain := said("k", `{"specversion":"1.0","time":"x","id":"1"}`); len(Differing(plain, said("k", `{"specversion":"1.0","time":"y","id":"1"}`))) == 0 {
		t.Error("another's time is not compared")
	}
}

// A tombstone and an empty value are told apart, and so are the borders of parts.
func TestDigestsTellPartsApart(t *testing.T) {
	seen := map[digest]string{}
	for _, r := range []*kgo.Record{
		said("a", "b"), said("ab", ""), said("ab", "null"), said("", "ab"), said("null", "ab"), said("a", "", "b", ""), said("a", "", "b", "null"), said("", "", "ab", ""), said("", "", "a", "b"),
		said("", "", "a", "", "b", ""), said("", "", "a", "", "", "b"),
	} {
		d := digestOf(r)
		if other, taken := seen[d]; taken {
			t.Errorf("%q and %s have one digest", r.Key, other)
		}
		seen[d] = fmt.Sprintf("%q %q %v", r.Key, r.Value, r.Headers)
	}
}

// The comparison is that of plain maps: a record of the content is enough, another topic
// counts for no row, and the version decides between Different and Changed.
func TestContentsAgainstMaps(t *testing.T) {
	table := &Table{Name: pg.Table{Schema: "s", Name: "t"}}
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 2))
		c := must.Get(NewContents(t.TempDir(), []string{"letters"}, 5))(t)
		var rows []*Row
		records := map[string][]*kgo.Record{}
		for n := range 200 {
			id := fmt.Sprint("event ", n)
			row := &Row{Event: &transform.Event{ID: []byte(id), Record: *said("k", fmt.Sprint(r.IntN(3)))}, Committed: NoTime, XID: uint32(1 + r.IntN(3)), table: table}
			row.Event.Record.Partition = int32(r.IntN(3) - 1)
			row.Entry = Entry{Key: KeyOf(row.Event.ID), Topic: uint16(r.IntN(2)), Order: [catalog.OrderNumbers]int64{int64(-n)}, At: time.Duration(r.IntN(3) * int(24*time.Hour)).Microseconds()}
			row.Bad = r.IntN(10) == 0
			rows = append(rows, row)
			must.OK(t, c.row(row))
			for range r.IntN(4) {
				rec := said("k", fmt.Sprint(r.IntN(3)))
				if xid := r.IntN(4); xid > 0 {
					rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: "cdc-xid", Value: fmt.Append(nil, xid)})
				}
				counts := []uint16{0, 1, Anywhere}[r.IntN(3)]
				rec.Topic, rec.Partition, rec.Offset = fmt.Sprint(counts), int32(r.IntN(2)), int64(len(records[id]))
				if r.IntN(10) == 0 {
					rec.Topic = "letters"
				}
				must.OK(t, c.record(rec, []byte(id), counts, counts))
				rec.LeaderEpoch = int32(counts)
				records[id] = append(records[id], rec)
			}
		}
		var want ContentCounts
		var differ []Key
		for _, row := range slices.Backward(rows) { // Order is that of falling numbers
			if row.Bad {
				continue
			}
			var compared, equal, elsewhere, unchanged, changed bool
			for _, rec := range records[string(row.Event.ID)] {
				if rec.Topic == "letters" {
					continue
				}
				alike := string(rec.Value) == string(row.Event.Record.Value) && (row.Event.Record.Partition < 0 || row.Event.Record.Partition == rec.Partition)
				if n := uint16(rec.LeaderEpoch); n != row.Entry.Topic && n != Anywhere {
					elsewhere = elsewhere || alike
					continue
				}
				compared = true
				equal = equal || alike
				xid, _ := origin(rec)
				unchanged = unchanged || xid == row.XID
				changed = changed || xid != 0 && xid != row.XID
			}
			switch {
			case equal:
				want.Compared++
				want.Equal++
				continue
			case compared:
				want.Compared++
				if !unchanged && changed {
					want.Changed++
				} else {
					want.Different++
				}
			case elsewhere:
				want.Elsewhere++
			default:
				continue
			}
			differ = append(differ, row.Entry.Key)
		}
		got := must.Get(c.Compare())(t)
		if got.Compared != want.Compared || got.Equal != want.Equal || got.Different != want.Different || got.Changed != want.Changed || got.Elsewhere != want.Elsewhere {
			t.Fatalf("seed %d: %+v, want %+v", seed, got, want)
		}
		var first []Key
		for _, d := range got.First {
			first = append(first, d.Row.Key)
		}
		if !slices.Equal(first, differ[:5]) {
			t.Fatalf("seed %d: first %x, want %x", seed, first, differ[:5])
		}
		var compared, equal int64
		for _, d := range got.Days {
			compared, equal = compared+d.Compared, equal+d.Equal
		}
		if len(got.Days) != 3 || compared != want.Compared || equal != want.Equal {
			t.Errorf("seed %d: %+v", seed, got.Days)
		}
		c.Close()
	}
}

// The time of the commit knows a row from behind a SAVEPOINT, whose number is another.
func TestVersions(t *testing.T) {
	for name, c := range map[string]struct {
		xid, of       uint32
		committed, at int64
		want          Version
	}{
		"the same transaction":      {7, 7, NoTime, NoTime, Unchanged},
		"another transaction":       {8, 7, NoTime, 5, Changed},
		"a record without a number": {7, 0, 5, NoTime, Untold},
		"a savepoint":               {8, 7, 5, 5, Unchanged},
		"a later commit":            {8, 7, 6, 5, Changed},
		"a number used again":       {7, 7, 6, 5, Changed},
	} {
		row := rowContent{xid: c.xid, committed: c.committed}
		if got := row.versionOf(&recordContent{xid: c.of, at: c.at}); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// Days beyond the bound count together, for each table.
func TestDaysAreBounded(t *testing.T) {
	d := days{index: make(map[day]uint32)}
	a, b := &Table{Name: pg.Table{Name: "a"}}, &Table{Name: pg.Table{Name: "b"}}
	const micros = 24 * 60 * 60 * 1_000_000
	for n := range int64(mostDays + 10) {
		d.of(a, n*micros)
	}
	if n := d.of(a, 3*micros+1); d.list[n].Day != time.Unix(3*24*60*60, 0).UTC() {
		t.Errorf("%+v", d.list[n])
	}
	if n := d.of(b, 3*micros); len(d.list) != mostDays+2 || !d.list[n].Day.IsZero() || d.list[n].Table.Name != "b" {
		t.Errorf("%d days, %+v", len(d.list), d.list[n])
	}
	before := d.of(a, -1)
	if n := d.of(a, NoTime); n != before {
		t.Errorf("%d, want %d", n, before)
	}
}
