package catalog

import (
	"strings"
	"testing"
)

func TestDefects(t *testing.T) {
	for version, want := range map[int]string{
		140000: "14.18", 140017: "14.18", 140018: "14.19", 140019: "",
		150012: "15.13", 150013: "15.14", 150018: "",
		160008: "16.9", 160009: "16.10", 160010: "",
		170004: "17.5", 170005: "17.6", 170006: "",
		180000: "", 190000: "",
	} {
		found := Defects(version)
		if want == "" && len(found) == 0 {
			continue
		}
		if len(found) != 1 {
			t.Errorf("%d: %d defects, want one", version, len(found))
			continue
		}
		if _, remedy := found[0].Describe(version); !strings.HasPrefix(remedy, "upgrade to "+want+" ") {
			t.Errorf("%d: %s, want %s", version, remedy, want)
		}
	}
}
