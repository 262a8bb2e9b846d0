package catalog

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

func TestFindSwitch(t *testing.T) {
	const history = "1\t0/3000150\tno recovery target specified\n\n# by hand\n12\t1A/C00000D8\tbefore 2026-01-01\n"
	for _, tc := range []struct {
		name string
		file string
		old  int32
		want pg.LSN
	}{
		{"an ancestor", history, 1, 0x3000150},
		{"an ancestor with a high LSN", history, 12, 0x1AC00000D8},
		{"no ancestor", history, 2, 0},
		{"a prefix of an ancestor's number", "12\t0/1\tx\n", 1, 0},
		{"an empty file", "", 1, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, err := findSwitch([]byte(tc.file), tc.old); got != tc.want || err != nil {
				t.Errorf("findSwitch: %s, %v; want %s", got, err, tc.want)
			}
		})
	}
	if _, err := findSwitch([]byte("1\tgarbled\tx\n"), 1); err == nil {
		t.Error("a garbled LSN was accepted")
	}
}
