package e2e

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// restarts is how many of them a median is of.
const restarts = 11

// BenchmarkRestart measures the time from the start of the process to the first
// event, committed before, being readable at the broker.
func BenchmarkRestart(b *testing.B) {
	w := newWorld(b, options{direct: true, unread: true})
	for b.Loop() {
		median := w.restarts(restarts)
		b.ReportMetric(float64(median.Milliseconds()), "ms-median")
	}
}

// TestRestartIsQuick is the benchmark with a limit that a busy machine keeps;
// the target, on an idle one, is 300 ms.
func TestRestartIsQuick(t *testing.T) {
	const limit = time.Second
	w := newWorld(t, options{direct: true, unread: true})
	median := w.restarts(restarts / 2)
	t.Logf("restart to first event: median %s", median)
	if median > limit {
		t.Errorf("restart to first event took %s, want at most %s", median, limit)
	}
}

// restarts stops and starts the connector n times and returns the median time to
// the first event.
func (w *world) restarts(n int) time.Duration {
	w.t.Helper()
	reader := w.broker.Client(w.t, kgo.ConsumeTopics(topicOf("order")), kgo.FetchMaxWait(50*time.Millisecond))
	w.start().stop()
	read, want := 0, w.seriesLength()
	var took []time.Duration
	for range n {
		w.insertSeries(1)
		want++
		c := startConnector(w.t, w.config)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		for read < want && ctx.Err() == nil {
			read += reader.PollFetches(ctx).NumRecords()
		}
		if read != want {
			w.t.Fatalf("%d of %d events arrived", read, want)
		}
		took = append(took, time.Since(c.started))
		cancel()
		c.stop()
	}
	slices.Sort(took)
	return took[len(took)/2]
}
