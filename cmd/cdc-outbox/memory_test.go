package main

import (
	"runtime/debug"
	"slices"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

func TestMemoryLimit(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*config.Config)
		want   int64 // MiB
	}{
		"the default":  {func(*config.Config) {}, 32},
		"exactly once": {func(c *config.Config) { c.Sink.Kafka.Delivery = sink.DeliveryExactlyOnce }, 40},
		"polling":      {func(c *config.Config) { c.Source.Mode = config.ModePoll }, 40},
		"no Kafka":     {func(c *config.Config) { c.Sink.Kafka = nil }, 24},
		"parked events": {func(c *config.Config) {
			c.Errors.OnBadEvent, c.Errors.QuarantineLimit = transform.BadEventQuarantine, 1<<16
		}, 48},
		"more in flight": {func(c *config.Config) { c.Sink.Kafka.MaxBufferedBytes = 64 << 20 }, 144},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Default()
			c.change(&cfg)
			if got := memoryLimit(cfg.Each()); got != c.want<<20 {
				t.Errorf("%d MiB; want %d", got>>20, c.want)
			}
		})
	}
}

func TestMemorySettingsOfTheEnvironmentStay(t *testing.T) {
	percent, limit := debug.SetGCPercent(77), debug.SetMemoryLimit(1<<40)
	defer func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}()
	cfg := config.Default()
	p := &program{environ: []string{"GOGC=77", "GOMEMLIMIT=1TiB"}}
	p.boundMemory(cfg.Each())
	if got := debug.SetGCPercent(77); got != 77 {
		t.Errorf("GOGC is %d", got)
	}
	if got := debug.SetMemoryLimit(-1); got != 1<<40 {
		t.Errorf("GOMEMLIMIT is %d", got)
	}
	p.environ = nil
	p.boundMemory(cfg.Each())
	if got := debug.SetMemoryLimit(-1); got != memoryLimit(cfg.Each()) {
		t.Errorf("the limit is %d, want ours", got)
	}
}

// The heap of many pipelines is larger, and collected more often; also once they come and go.
func TestCollectorOfManyPipelines(t *testing.T) {
	percent, limit := debug.SetGCPercent(77), debug.SetMemoryLimit(1<<40)
	defer func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}()
	cfg, p := config.Default(), &program{}
	for _, want := range []struct {
		pipelines, percent int
		limit              int64 // MiB
	}{{0, 200, 16}, {1, 200, 32}, {9, 200, 288}, {10, 50, 320}, {2, 200, 64}} {
		p.boundMemory(slices.Repeat([]config.Pipeline{{Config: &cfg}}, want.pipelines))
		if percent, limit := debug.SetGCPercent(77), debug.SetMemoryLimit(-1); percent != want.percent || limit != want.limit<<20 {
			t.Errorf("of %d pipelines GOGC is %d and the limit %d MiB, want %d and %d", want.pipelines, percent, limit>>20, want.percent, want.limit)
		}
	}
}
