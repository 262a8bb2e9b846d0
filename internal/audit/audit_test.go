package audit

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// id is a UUID of version 4 or 7, or another text.
func id(r *rand.Rand) string {
	switch r.IntN(3) {
	case 0:
		return fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", r.Uint32(), r.IntN(1<<16), r.IntN(1<<12), r.IntN(1<<12), r.Int64N(1<<48))
	case 1:
		return fmt.Sprintf("0198b2c0-0000-7000-8000-%012x", r.IntN(1000))
	}
	return fmt.Sprintf("event %d", r.IntN(1000))
}

// The comparison is that of plain maps, for any numbers of rows and records, with
// runs of the sort in several files.
func TestAgainstMaps(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		a := must.Get(New(t.TempDir()))(t)
		a.missing.chunk = 1 + r.IntN(50)
		type place struct {
			id    string
			topic uint16
		}
		rows, records := map[place]Entry{}, map[place]int{}
		for range r.IntN(400) {
			at := place{id(r), uint16(r.IntN(3))}
			if _, twice := rows[at]; twice {
				continue
			}
			e := Entry{Key: KeyOf([]byte(at.id)), Order: [catalog.OrderNumbers]int64{r.Int64N(20) - 10, r.Int64N(3), r.Int64N(3), r.Int64N(2)}, Command: r.Uint32N(3), At: r.Int64(),
				Place: Place{r.Uint32(), r.Uint32(), uint16(r.IntN(1 << 16))}, Topic: at.topic}
			rows[at] = e
			must.OK(t, a.Row(&e))
		}
		for n := range r.IntN(800) {
			at := place{id(r), []uint16{0, 1, 2, Anywhere}[r.IntN(4)]}
			for row := range rows { // any of them
				if r.IntN(3) > 0 {
					at.id = row.id
				}
				break
			}
			must.OK(t, a.Record([]byte(at.id), at.topic, Spot{Offset: int64(n)}))
			records[at]++
		}

		known := func(e *Entry) bool { return e.At%3 != 0 }
		var want Counts
		lone := map[Key]bool{}
		var missing []Entry
		for at, e := range rows {
			want.Rows++
			want.RowSum.add(e.Key)
			switch {
			case records[at]+records[place{at.id, Anywhere}] > 0:
				want.Found++
				want.FoundSum.add(e.Key)
			case known(&e):
				want.Missing++
				missing = append(missing, e)
			default:
				want.Unknown++
			}
		}
		for _, n := range records {
			want.Records += int64(n)
			want.Repeated += int64(n - 1)
		}
		alone := map[Key]bool{}
		a.Alone(func(e *Entry) error {
			alone[e.Key] = true
			return nil
		})
		for at := range records {
			_, has := rows[at]
			for row := range rows {
				has = has || at.topic == Anywhere && row.id == at.id
			}
			if !has {
				lone[KeyOf([]byte(at.id))] = true
			}
		}
		if got := must.Get(a.Compare(known))(t); got != want || !maps.Equal(alone, lone) {
			t.Fatalf("seed %d: %+v, want %+v", seed, got, want)
		}
		slices.SortFunc(missing, func(x, y Entry) int { return x.compare(&y) })
		for range 2 {
			var got []Entry
			must.OK(t, a.Missing(func(e *Entry) error {
				got = append(got, *e)
				return nil
			}))
			if !slices.Equal(got, missing) {
				t.Fatalf("seed %d: missing\n%v, want\n%v", seed, got, missing)
			}
		}
		a.Close()
	}
}

func TestKeyOf(t *testing.T) {
	const canonical = "0198b2c0-1234-7abc-8def-0123456789ab"
	if got := KeyOf([]byte(canonical)); fmt.Sprintf("%x", got) != "0198b2c012347abc8def0123456789ab" {
		t.Errorf("%x", got)
	}
	seen := map[Key]string{}
	for _, text := range []string{canonical, "0198B2C0-1234-7abc-8def-0123456789ab", "0198b2c0123-47abc-8def-0123456789ab", "0198b2c012347abc8def0123456789ab",
		"{" + canonical + "}", "0198b2c0-1234-7abc-8def-0123456789ag", "", "0", "x"} {
		if other, taken := seen[KeyOf([]byte(text))]; taken {
			t.Errorf("%q and %q have one key", text, other)
		}
		seen[KeyOf([]byte(text))] = text
	}
}

// Ids with random bits in any place are divided evenly.
func TestSharesAreEven(t *testing.T) {
	for name, form := range map[string]string{
		"counted":           "%d",
		"UUID version 7":    "0198b2c0-%04x-7abc-8def-0123456789ab",
		"UUID of one clock": "%08x-1234-1abc-8def-0123456789ab",
	} {
		var counts [shares]int
		const each = 100
		for n := range shares * each {
			counts[KeyOf(fmt.Appendf(nil, form, n)).share(shares)]++
		}
		if most := slices.Max(counts[:]); most > 2*each {
			t.Errorf("%s: a share has %d of %d", name, most, shares*each)
		}
	}
}
