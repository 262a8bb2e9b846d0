package main

import (
	"runtime/debug"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/quarantine"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Limits of the heap beside the bytes in flight.
const (
	// baseMemory is for the runtime, the connections, one batch being compressed, and
	// room: with 8 MiB the collector takes a quarter of the processor time of a drain.
	baseMemory = 16 << 20
	// largeBatches is added where batches are larger than in a stream with
	// at_least_once.
	largeBatches = 8 << 20
	// gcPercent is of a few pipelines, with a heap of some MiB. The heap of many is
	// larger, and few of them are busy at once.
	gcPercent     = 200
	gcPercentMany = 50
	many          = 10
)

// boundMemory makes the garbage collector keep the process small rather than
// let the heap double between two collections. GOGC and GOMEMLIMIT, where they
// are set, stay in force. boundMemory is called again before other pipelines begin.
func (p *program) boundMemory(pipelines []config.Pipeline) {
	if p.getenv("GOGC") == "" {
		percent := gcPercent
		if len(pipelines) >= many {
			percent = gcPercentMany
		}
		debug.SetGCPercent(percent)
	}
	if p.getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit(pipelines))
	}
}

// memoryLimit counts the bytes in flight twice, as events and as the record
// batches made of them, and the keys of all events that may be parked. The limit is soft: near it the collector works harder,
// and never refuses memory.
func memoryLimit(pipelines []config.Pipeline) int64 {
	var limit int64
	for _, p := range pipelines {
		limit += baseMemory
		kafka := p.Config.Sink.Kafka
		if kafka == nil || kafka.Delivery == sink.DeliveryExactlyOnce || p.Config.Source.Mode == config.ModePoll {
			limit += largeBatches
		}
		if kafka != nil {
			limit += 2 * kafka.MaxBufferedBytes
		}
		if errors := p.Config.Errors; errors.OnBadEvent == transform.BadEventQuarantine {
			limit += int64(errors.QuarantineLimit) * quarantine.EventMemory
		}
	}
	return max(limit, baseMemory) // also without pipelines
}
