package stream

import (
	"testing"
	"time"
)

func TestForecast(t *testing.T) {
	const mib = 1 << 20
	begin := time.Unix(0, 0)
	for name, tt := range map[string]struct {
		retained func(i int) int64
		looks    int
		safe     int64 // 0: no limit
		rate     float64
		in       float64
	}{
		"grows":                 {func(i int) int64 { return int64(100+i) * mib }, 60, 600 * mib, mib, 600},
		"grows without a limit": {func(i int) int64 { return int64(100+i) * mib }, 60, 0, mib, 0},
		"beyond the limit":      {func(i int) int64 { return int64(100+i) * mib }, 60, -1, mib, 0},
		"goes up and down":      {func(i int) int64 { return int64(100+i%15) * mib }, 60, 600 * mib, 0, 0},
		"falls":                 {func(i int) int64 { return int64(900-i) * mib }, 60, 600 * mib, 0, 0},
		"is little":             {func(i int) int64 { return int64(i) * 1024 }, 60, 600 * mib, 0, 0},
		"is not known yet":      {func(i int) int64 { return int64(100+i) * mib }, 9, 600 * mib, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var seen trend
			for i := range tt.looks {
				seen.see(begin.Add(time.Duration(i)*time.Second), tt.retained(i))
			}
			var safe *int64
			if tt.safe != 0 {
				safe = &tt.safe
			}
			f := seen.forecast(safe, "pid 7")
			switch {
			case tt.rate == 0:
				if f != nil {
					t.Errorf("forecast %+v, want none", *f)
				}
			case f == nil || f.GrowthBytesPerSecond != tt.rate || f.HeldBackBy != "pid 7":
				t.Errorf("forecast %+v, want a growth of %v", f, tt.rate)
			case (f.LimitInSeconds == nil) != (tt.safe == 0) || f.LimitInSeconds != nil && *f.LimitInSeconds != tt.in:
				t.Errorf("limit in %v, want %v", f.LimitInSeconds, tt.in)
			}
			if len(seen.marks) > forecastMarks {
				t.Errorf("%d marks are kept", len(seen.marks))
			}
		})
	}
}
