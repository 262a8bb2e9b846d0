package sight_test

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/sight"
)

func parse(t *testing.T, text string) sight.Snapshot {
	t.Helper()
	s, err := sight.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSees(t *testing.T) {
	const epoch = 1 << 32
	for _, tt := range []struct {
		name, snapshot string
		sees, misses   []uint32
	}{
		{"nothing runs", "100:100:", []uint32{3, 99}, []uint32{100, 101, 1 << 30}},
		{"between", "100:110:100,105", []uint32{99, 101, 104, 106, 109}, []uint32{100, 105, 110, 111}},
		{"a slot's, with xmin behind xmax", "102:100:", []uint32{99, 100, 101}, []uint32{102, 103}},
		{"in any order", "100:110:105,100", []uint32{101}, []uint32{100, 105}},
		{"a later epoch", "4294967400:4294967410:4294967405", []uint32{103, 108, epoch - 1}, []uint32{109, 114, 200}},
		{"over the end of an epoch", "4294967290:4294967300:4294967295,4294967297",
			[]uint32{epoch - 7, epoch - 6, epoch - 2, 3}, []uint32{epoch - 1, 1, 4, 1000}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := parse(t, tt.snapshot)
			for _, xid := range tt.sees {
				if !s.Sees(xid) {
					t.Errorf("does not see %d", xid)
				}
			}
			for _, xid := range tt.misses {
				if s.Sees(xid) {
					t.Errorf("sees %d", xid)
				}
			}
		})
	}
}

func TestTheZeroSnapshotSeesNothing(t *testing.T) {
	var s sight.Snapshot
	for _, xid := range []uint32{3, 1 << 31, 1<<32 - 1} {
		if s.Sees(xid) {
			t.Errorf("sees %d", xid)
		}
	}
}

func TestCovers(t *testing.T) {
	for _, tt := range []struct {
		name, now, then string
		want            bool
	}{
		{"the same", "100:110:100,105", "100:110:100,105", true},
		{"later", "105:120:105,115", "100:110:100,105", true},
		{"while one that was seen waits", "104:120:104", "100:110:100,105", false},
		{"while the last that was seen waits", "100:109:100,105", "100:110:100,105", false},
		{"nothing", "100:110:", "0:0:", true},
		{"a slot's, not quite", "101:101:", "102:100:", false},
		{"a slot's", "102:102:", "102:100:", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := parse(t, tt.now).Covers(parse(t, tt.then)); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"", "1:2", "1:2:3:4", "a:2:", "1:-2:", "1:2:3,", "1:2:x"} {
		if s, err := sight.Parse(text); err == nil {
			t.Errorf("%q is %v", text, s)
		}
	}
}

func TestStringIsForParse(t *testing.T) {
	for text, want := range map[string]string{"100:110:105,100": "100:110:100,105", "100:100:": "100:100:", "102:100:": "102:102:"} {
		if got := parse(t, text).String(); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
}

// Failure mode 200.
func TestWrote(t *testing.T) {
	for snapshot, want := range map[string]string{
		"100:100:":                         "(((xmin::text::int8 - 100) & 4294967295) >= 2147483648 OR xmin::text::int8 < 3)",
		"102:100:":                         "(((xmin::text::int8 - 102) & 4294967295) >= 2147483648 OR xmin::text::int8 < 3)",
		"4294967400:4294967410:4294967405": "(((xmin::text::int8 - 114) & 4294967295) >= 2147483648 OR xmin::text::int8 < 3) AND xmin <> ALL ('{109}'::xid[])",
	} {
		if got := parse(t, snapshot).Wrote(); got != want {
			t.Errorf("%s: %s", snapshot, got)
		}
	}
}
