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
	reader := w.broker.Client(b, kgo.ConsumeTopics(topicOf("order")), kgo.FetchMaxWait(50*time.Millisecond))
	w.start().stop()
	read, want := 0, w.seriesLength()
	restart := func() time.Duration {
		w.insertSeries(1)
		want++
		c := startConnector(w.t, w.config)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		for read < want && ctx.Err() == nil {
			read += reader.PollFetches(ctx).NumRecords()
		}
		if read != want {
			b.Fatalf("%d of %d events arrived", read, want)
		}
		took := time.Since(c.started)
		cancel()
		c.stop()
		return took
	}
	for b.Loop() {
		took := make([]time.Duration, restarts)
		for i := range took {
			took[i] = restart()
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "ms-median")
	}
}
