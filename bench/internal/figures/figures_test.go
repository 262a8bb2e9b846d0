package figures_test

import (
	"bytes"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{7}, 7},
		{[]float64{3, 1, 2}, 2},
		{[]float64{4, 1, 3, 2}, 2.5},
	} {
		if got := figures.Median(c.values); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.values, got, c.want)
		}
	}
	values := []float64{3, 1, 2}
	figures.Median(values)
	if !reflect.DeepEqual(values, []float64{3, 1, 2}) {
		t.Errorf("the values are sorted: %v", values)
	}
}

func TestPercentileIsTheNearestRank(t *testing.T) {
	thousand := make([]int, 1000)
	for i := range thousand {
		thousand[i] = i + 1
	}
	for _, c := range []struct {
		sorted []int
		p      float64
		want   int
	}{
		{nil, 50, 0},
		{[]int{5}, 99.9, 5},
		{[]int{1, 2, 3, 4}, 50, 2},
		{[]int{1, 2, 3, 4}, 0, 1},
		{[]int{1, 2, 3, 4}, 100, 4},
		{thousand, 50, 500},
		{thousand, 99, 990},
		{thousand, 99.9, 999},
	} {
		if got := figures.Percentile(c.sorted, c.p); got != c.want {
			t.Errorf("p%v of %d values is %d, want %d", c.p, len(c.sorted), got, c.want)
		}
	}
}

func TestNumberHasThreeDigitsThatCount(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 65_972.4: "65972", 144.6: "145", 14.56: "14.6", 5.04: "5.04", 0.5544: "0.554", 0.00007: "0.0001", -3.14159: "-3.14",
	} {
		if got := figures.Number(v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
}

// report has two subjects in three rounds, with a failure.
func report() *figures.Report {
	r := &figures.Report{
		Benchmark: "test",
		Began:     time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Metrics: []figures.Metric{
			{Name: "rate", Title: "throughput", Unit: "events/s", Better: "more"},
			{Name: "cpu", Title: "CPU per event", Unit: "µs", Better: "less"},
			{Name: "idle", Title: "idle CPU", Unit: "%", Better: "less"}, // under no load
		},
		Failures: []figures.Failure{{Load: "drain", Subject: "theirs", Round: 3, Error: "out of memory"}},
	}
	for round, rates := range [][]float64{{100, 40}, {200, 50}, {90}} {
		for n, rate := range rates {
			r.Measurements = append(r.Measurements, figures.Measurement{
				Load: "drain", Subject: []string{"ours", "theirs"}[n], Round: round + 1, Values: map[string]float64{"rate": rate},
			})
		}
	}
	r.Measurements[1].Values["cpu"] = 7.5
	return r
}

func TestRatioIsOfTheSameRound(t *testing.T) {
	// 40/100 and 50/200; the third round of ours has no partner.
	if got, ok := report().Ratio("drain", "theirs", "ours", "rate"); !ok || got != 0.325 {
		t.Errorf("ratio %v, %t, want 0.325", got, ok)
	}
	if got, ok := report().Ratio("drain", "theirs", "nobody", "rate"); ok {
		t.Errorf("ratio to nobody: %v", got)
	}
}

func TestPrint(t *testing.T) {
	var out bytes.Buffer
	if err := report().Print(&out, "ours"); err != nil {
		t.Fatal(err)
	}
	const want = `
drain (medians; in brackets, divided by ours's of the same round)
subject  rounds  throughput, events/s  CPU per event, µs
ours     3       100                   -
theirs   2       45.0 (0.33)           7.50

FAILED: drain, theirs, round 3: out of memory
`
	if out.String() != want {
		t.Errorf("printed:%s\nwant:%s", out.String(), want)
	}
}

func TestReadReturnsWhatWriteWrote(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	want := report()
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := figures.Read(path)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, %v, want %+v", got, err, want)
	}
}
