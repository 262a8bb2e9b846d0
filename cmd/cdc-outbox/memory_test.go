package main

import (
	"runtime/debug"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
)

func TestMemoryLimit(t *testing.T) {
	cfg := config.Default()
	if got := memoryLimit(&cfg); got != 32<<20 {
		t.Errorf("limit of the default configuration is %d MiB, want 32", got>>20)
	}
	cfg.Sink.Kafka = nil
	if got := memoryLimit(&cfg); got != 32<<20 {
		t.Errorf("limit without Kafka is %d MiB, want 32", got>>20)
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
	p.boundMemory(&cfg)
	if got := debug.SetGCPercent(77); got != 77 {
		t.Errorf("GOGC is %d", got)
	}
	if got := debug.SetMemoryLimit(-1); got != 1<<40 {
		t.Errorf("GOMEMLIMIT is %d", got)
	}
	p.environ = nil
	p.boundMemory(&cfg)
	if got := debug.SetMemoryLimit(-1); got != memoryLimit(&cfg) {
		t.Errorf("the limit is %d, want ours", got)
	}
}
