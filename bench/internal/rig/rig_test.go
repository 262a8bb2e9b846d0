package rig

import (
	"os"
	"runtime"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemoryIsThatOfTheLine(t *testing.T) {
	status := []byte("Name:\tx\nVmPeak:\t 9 kB\nVmHWM:\t  2048 kB\nVmRSS:\t  1536 kB\n")
	for name, want := range map[string]float64{"VmHWM": 2, "VmRSS": 1.5} {
		if got, err := memory(status, name); err != nil || got != want {
			t.Errorf("%s: %v MiB, %v, want %v", name, got, err, want)
		}
	}
	if _, err := memory(status, "VmSwap"); err == nil {
		t.Error("a line that is not there")
	}
}

func TestFailureKeepsTheReasons(t *testing.T) {
	const trace = "ERROR it failed\njava.lang.Error: a\n\tat io.A.b(A.java:1) ~[?]\n\t... 3 more\nCaused by: b\n\tat io.B.c(B.java:2)\n"
	if got, want := WithoutFrames(trace), "ERROR it failed\njava.lang.Error: a\nCaused by: b\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestUsageGrows(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc of Linux")
	}
	before, err := measure(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	after := before
	for after.CPU == before.CPU { // reading the usage takes some
		if after, err = measure(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	if after.CPU < before.CPU || after.RSS <= 0 || after.Peak < after.RSS {
		t.Errorf("used %+v, then %+v", before, after)
	}
}

func TestConfigurationHasEachPipeline(t *testing.T) {
	const want = `pipelines:
  p0:
    source: {url: "postgres://a/one", slot: s1, publication: cdc_outbox}
    route: {topic: t.1}
  p1:
    source: {url: "postgres://a/two", slot: s2, publication: cdc_outbox}
    route: {topic: t.2}
  p2:
    source: {url: "postgres://a/three", mode: poll, tables: [polled]}
    route: {topic: t.3}
`
	pipelines := []Pipeline{
		{URL: "postgres://a/one", Slot: "s1", Topic: "t.1"}, {URL: "postgres://a/two", Slot: "s2", Topic: "t.2"},
		{URL: "postgres://a/three", Slot: "s3", Topic: "t.3", Polled: "polled"},
	}
	if got := string(Configuration(pipelines, "")); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestSettingsAreKeysWithValues(t *testing.T) {
	var s Settings
	if s.Set("key") == nil || s.Set("a=b=c") != nil || s.Map()["a"] != "b=c" {
		t.Errorf("settings %v", s)
	}
}
