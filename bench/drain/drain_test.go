package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "rig-") {
		rig.Main("drain", nil) // the broker, or the bare reader
	}
	goleak.VerifyTestMain(m)
}

// small is all scenarios with as little as there can be.
func small() options {
	return options{
		scenarios: names(scenarios), rounds: 1, partitions: 2, load: rig.Load{Rows: 100, PerTx: 10, Payload: 500}, huge: 100, many: 1000,
		delays: rig.List{"1ms"},
	}
}

// TestE2EScenarios runs each: a drain whose records are not the rows fails.
func TestE2EScenarios(t *testing.T) {
	o := small()
	o.json = t.TempDir() + "/results.json"
	if err := run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	report, err := figures.Read(o.json)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(report.Loads()), len(scenarios)+5; got != want { // size, decode and split have two, network has three
		t.Errorf("%d loads, want %d: %q", got, want, report.Loads())
	}
	for _, m := range report.Measurements {
		if m.Values[metricRate] <= 0 || m.Values[metricCPU] <= 0 {
			t.Errorf("%s, %s: %v", m.Load, m.Subject, m.Values)
		}
	}
}

// TestE2ERival has a connector beside another.
func TestE2ERival(t *testing.T) {
	program, err := rig.NewConnector(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Remove()
	o := small()
	o.scenarios, o.binary, o.rival = rig.List{"default"}, program.Path(), program.Path()
	o.json = t.TempDir() + "/results.json"
	if err := run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	report, err := figures.Read(o.json)
	if err != nil {
		t.Fatal(err)
	}
	load := report.Loads()[0]
	if got := report.Subjects(load); !slices.Equal(got, []string{oursName, rivalName}) {
		t.Errorf("%q took turns", got)
	}
	for _, metric := range []string{metricRate, metricCPU} {
		if ratio, ok := report.Ratio(load, rivalName, oursName, metric); !ok || ratio <= 0 {
			t.Errorf("the ratio of %s is %v, %t", metric, ratio, ok)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	if err := small().check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*options){
		"a rival alone":         func(o *options) { o.rival = "old" },
		"an unknown scenario":   func(o *options) { o.scenarios = rig.List{"defaults"} },
		"no round":              func(o *options) { o.rounds = 0 },
		"nine transactions":     func(o *options) { o.load.PerTx = 11 },
		"less than no other":    func(o *options) { o.load.Others = -1 },
		"a small transaction":   func(o *options) { o.huge = 99 },
		"no delay":              func(o *options) { o.delays = rig.List{"2"} },
		"sizes with no content": func(o *options) { o.many = 0 },
	} {
		bad := small()
		change(&bad)
		if bad.check() == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestUsualScenariosAreSome(t *testing.T) {
	if n := len(usual()); n == 0 || n == len(scenarios) {
		t.Errorf("%d of %d scenarios are usual", n, len(scenarios))
	}
}

func TestBacklogMustFitOnTheDisk(t *testing.T) {
	load := rig.Load{Rows: 100, PerTx: 10, Payload: 500}
	if err := checkRoom(t.TempDir(), 1, load); err != nil {
		t.Error(err)
	}
	load.Rows = 1 << 40
	if err := checkRoom(t.TempDir(), 1, load); err == nil || !strings.Contains(err.Error(), "GiB") {
		t.Errorf("2^40 rows fit: %v", err)
	}
}
