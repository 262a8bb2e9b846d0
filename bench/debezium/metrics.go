package main

import (
	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
)

// The names of everything measured.
const (
	metricRate    = "events_per_second"
	metricCPU     = "cpu_us_per_event"
	metricPeak    = "peak_rss_mib"
	metricFirst   = "start_to_first_ms"
	metricLast    = "start_to_last_ms"
	metricP50     = "latency_p50_ms"
	metricP99     = "latency_p99_ms"
	metricP999    = "latency_p99_9_ms"
	metricIdleCPU = "idle_cpu_percent"
	metricIdleRSS = "idle_rss_mib"
	metricStart   = "start_to_streaming_ms"
	metricRSS     = "rss_mib"
)

var metrics = []figures.Metric{
	{Name: metricRate, Title: "throughput", Unit: "events/s", Better: "more"},
	{Name: metricCPU, Title: "CPU per event", Unit: "µs", Better: "less"},
	{Name: metricRSS, Title: "RSS under traffic", Unit: "MiB", Better: "less"},
	{Name: metricPeak, Title: "peak RSS", Unit: "MiB", Better: "less"},
	{Name: metricP50, Title: "latency p50", Unit: "ms", Better: "less"},
	{Name: metricP99, Title: "latency p99", Unit: "ms", Better: "less"},
	{Name: metricP999, Title: "latency p99.9", Unit: "ms", Better: "less"},
	{Name: metricIdleCPU, Title: "idle CPU", Unit: "% of a core", Better: "less"},
	{Name: metricIdleRSS, Title: "idle RSS", Unit: "MiB", Better: "less"},
	{Name: metricStart, Title: "start to all streaming", Unit: "ms", Better: "less"},
	{Name: metricFirst, Title: "start to first record", Unit: "ms", Better: "less"},
	{Name: metricLast, Title: "start to last record", Unit: "ms", Better: "less"},
}
