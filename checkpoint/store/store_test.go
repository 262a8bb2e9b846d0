package store

import (
	"context"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// place keeps the checkpoints of a kind of stores, for a test.
type place struct {
	// open opens a store, for the suite to close.
	open func(t *testing.T, key string) checkpoint.Store
	// write puts raw bytes in place of the key's checkpoint.
	write func(t *testing.T, key, value string)
}

// TestStores has the duties of every store but none.
func TestStores(t *testing.T) {
	for name, newPlace := range map[string]func(*testing.T) place{
		"kafka":    kafkaPlace,
		"postgres": postgresPlace,
		"file":     filePlace,
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range conformance {
				t.Run(c.name, func(t *testing.T) { c.run(t, newPlace(t)) })
			}
		})
	}
}

var conformance = []struct {
	name string
	run  func(t *testing.T, p place)
}{
	{"empty", func(t *testing.T, p place) {
		wantNone(t, p.store(t, "a"))
	}},
	{"round trip", func(t *testing.T, p place) {
		s, want := p.store(t, "a"), sample(1)
		save(t, s, want)
		wantLoad(t, s, want)
	}},
	{"overwrite", func(t *testing.T, p place) {
		s := p.store(t, "a")
		for i := range uint64(20) {
			save(t, s, sample(i+1))
		}
		wantLoad(t, s, sample(20))
		save(t, s, inTheMiddle(20))
		wantLoad(t, s, inTheMiddle(20))
		again := sample(5) // set back by an operator
		again.Epoch++
		save(t, s, again)
		wantLoad(t, s, again)
	}},
	{"reopened", func(t *testing.T, p place) {
		s := p.open(t, "a")
		save(t, s, sample(1))
		s.Close()
		wantLoad(t, p.store(t, "a"), sample(1))
	}},
	{"read beside the holder", func(t *testing.T, p place) {
		holder, spare := p.store(t, "a"), p.store(t, "a")
		wantNone(t, spare)
		save(t, holder, sample(1))
		wantLoad(t, spare, sample(1))
		save(t, holder, sample(2))
		wantLoad(t, spare, sample(2))
	}},
	{"former holder does not set it back", func(t *testing.T, p place) {
		former, holder := p.store(t, "a"), p.store(t, "a")
		stale, want := sample(1), sample(2)
		want.Epoch = stale.Epoch + 1
		save(t, former, stale)
		save(t, holder, want)
		if err := former.Save(t.Context(), stale); err != nil {
			t.Log(err) // a store may refuse, or ignore it when it loads
		}
		wantLoad(t, holder, want)
		wantLoad(t, p.store(t, "a"), want)
	}},
	{"late save does not set it back", func(t *testing.T, p place) {
		s := p.store(t, "a")
		save(t, s, sample(2))
		if err := s.Save(limited(t), sample(1)); err != nil {
			t.Log(err) // a store may refuse, or ignore it when it loads
		}
		wantLoad(t, s, sample(2))
	}},
	{"forgotten", func(t *testing.T, p place) {
		s := p.store(t, "a")
		for range 2 { // nothing to forget is fine
			must.OK(t, Forget(limited(t), s))
			wantNone(t, s)
			save(t, s, sample(1))
			wantLoad(t, s, sample(1))
		}
	}},
	{"no position", func(t *testing.T, p place) {
		s := p.store(t, "a")
		if err := s.Save(t.Context(), checkpoint.Checkpoint{Slot: "s"}); err == nil {
			t.Error("saved a checkpoint without a position")
		}
		wantNone(t, s)
	}},
	{"garbage", func(t *testing.T, p place) {
		for name, value := range map[string]string{
			"other JSON":   `{"connector": "another"}`,
			"a list":       `[1, 2]`,
			"no LSN":       `{"version": 1, "lsn": ""}`,
			"zero LSN":     `{"version": 1, "lsn": "0/0"}`,
			"LSN and more": `{"version": 1, "lsn": "0/10;"}`,
			"wrong type":   `{"version": 1, "lsn": "0/10", "timeline": "x"}`,
		} {
			t.Run(name, func(t *testing.T) {
				p.write(t, "a", value)
				wantRefusal(t, p.store(t, "a"), "is not a checkpoint of cdc-outbox")
			})
		}
	}},
	{"newer format", func(t *testing.T, p place) {
		p.write(t, "a", `{"version": 2, "lsn": {"shape": "unknown"}}`)
		wantRefusal(t, p.store(t, "a"), "format version 2")
	}},
	{"unknown fields are ignored", func(t *testing.T, p place) {
		p.write(t, "a", strings.Replace(mustEncode(t, sample(1)), `{`, `{"shard": 3, `, 1))
		wantLoad(t, p.store(t, "a"), sample(1))
	}},
}

func TestNoneKeepsNothing(t *testing.T) {
	var s checkpoint.Store = none{}
	save(t, s, sample(1))
	wantNone(t, s)
}

// store opens a store and closes it when the test ends.
func (p place) store(t *testing.T, key string) checkpoint.Store {
	t.Helper()
	s := p.open(t, key)
	t.Cleanup(s.Close)
	return s
}

func sample(n uint64) checkpoint.Checkpoint {
	cp := checkpoint.Checkpoint{
		LSN:         0x1_0000_0000 + pg.LSN(16*n),
		SystemID:    "7361234567890123456",
		Timeline:    3,
		Database:    `app "ü"`,
		Slot:        "cdc_outbox",
		Publication: "16400:public.outbox=16401",
		Landmark:    checkpoint.Landmark{Commit: pg.LSN(0x100000000 + n), XID: 4_000_000_000, Time: time.Date(2026, 7, 1, 12, 0, 0, 123_456_000, time.UTC)},
		Skip:        checkpoint.Landmark{Commit: pg.LSN(0x100000000 + 2*n), XID: 7, Time: time.Date(2026, 7, 1, 12, 0, 0, 1_000, time.UTC)},
		Owned:       checkpoint.Owned{{OID: 16401}, {OID: 4_000_000_000, Since: pg.LSN(n), Until: 2 << 32, Columns: map[string]pg.LSN{"type": pg.LSN(n)}}},
		Scope:       "public.outbox,messages:x",
		Ends:        checkpoint.Ends{"outbox.event.order": {ID: "abc", To: []int64{0, int64(n), 7}}},
		SavedAt:     time.Date(2026, 8, 1, 12, 0, 0, 123456000, time.UTC),
		Epoch:       4,
		Snapshot:    n%2 == 0,
	}
	if n%3 != 0 {
		cp.Accepted = &checkpoint.AcceptedGap{ID: "g", From: pg.LSN(n), To: 2 << 32, SystemID: "7", Timeline: 2, Accepted: cp.SavedAt, Reason: "lost"}
	}
	if n%3 == 1 {
		cp.Accepted.Since = cp.SavedAt.Add(-time.Hour)
	}
	if cp.Snapshot {
		cp.Initial = &checkpoint.Initial{Rows: uint32(n), At: 1, Tables: []checkpoint.InitialTable{
			{OID: 16401, Sight: "70:75:71,72", Counted: 9, Published: 9, TablePlace: catalog.TablePlace{Key: `"Id"`, KeyColumn: "1 20", Parts: []uint32{16401}, RowPlace: catalog.RowPlace{After: "9"}}},
			{OID: 4_000_000_000, Counted: 1 << 40, TablePlace: catalog.TablePlace{Parts: []uint32{4_000_000_000, 16403}, RowPlace: catalog.RowPlace{Part: 16403, File: 16404, After: "(3,1)"}}},
		}}
	}
	return cp
}

// inTheMiddle is sample within a transaction.
func inTheMiddle(n uint64) checkpoint.Checkpoint {
	cp := sample(n)
	cp.Cut = checkpoint.Cut{Landmark: cp.Landmark, Seq: uint32(n)}
	cp.Cut.Commit = cp.LSN + 8
	return cp
}

func mustEncode(t *testing.T, cp checkpoint.Checkpoint) string {
	t.Helper()
	b := must.Get(encode(cp))(t)
	return string(b)
}

func save(t *testing.T, s checkpoint.Store, cp checkpoint.Checkpoint) {
	t.Helper()
	must.OK(t, s.Save(limited(t), cp))
}

func wantLoad(t *testing.T, s checkpoint.Store, want checkpoint.Checkpoint) {
	t.Helper()
	got, ok, err := s.Load(limited(t))
	if err != nil || !ok || !reflect.DeepEqual(got, want) {
		t.Fatalf("loaded %+v, %v, %v; want %+v", got, ok, err, want)
	}
}

func wantNone(t *testing.T, s checkpoint.Store) {
	t.Helper()
	if got, ok, err := s.Load(limited(t)); ok || err != nil {
		t.Fatalf("loaded %+v, %v, %v; want nothing", got, ok, err)
	}
}

func wantRefusal(t *testing.T, s checkpoint.Store, says string) {
	t.Helper()
	_, ok, err := s.Load(limited(t))
	if ok || failure.ClassOf(err) != failure.Config || !strings.Contains(err.Error(), says) || failure.RemedyOf(err) == "" {
		t.Fatalf("loaded %v, %v; want a configuration error with a remedy that says %q", ok, err, says)
	}
}

// limited is the test's context with a deadline that only a hang reaches.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestOpenNamesTheCheckpoint(t *testing.T) {
	cfg := Options{Store: StoreFile, Path: filepath.Join(t.TempDir(), "c.json")}
	open := func(cfg Options, key string) checkpoint.Store {
		s := must.Get(Open(t.Context(), cfg, key, nil, broker.Tools{}, ""))(t)
		t.Cleanup(s.Close)
		return s
	}
	save(t, open(cfg, "app/slot"), sample(1))
	wantRefusal(t, open(cfg, "app/other"), `"app/slot"`)

	cfg.Key = "app/slot" // wins over the default
	wantLoad(t, open(cfg, "app/other"), sample(1))

	if _, err := Open(t.Context(), Options{Store: "paper"}, "a", nil, broker.Tools{}, ""); err == nil {
		t.Error("opened a store that does not exist")
	}
	wantNone(t, open(Options{Store: StoreNone}, "a"))
}
