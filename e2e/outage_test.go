package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// memoryLimit is the most memory the connector may ever have with default
// settings.
const memoryLimit = 128 << 20

// TestE2EBrokerOutDuringHugeTransaction commits a huge transaction while the
// broker is down and looks at the connector's memory, then at the topic (failure
// modes 17 and 25).
func TestE2EBrokerOutDuringHugeTransaction(t *testing.T) {
	rows, outage := 200_000, 15*time.Second
	switch {
	case os.Getenv(soakEnv) != "":
		rows, outage = 1_000_000, 10*time.Minute
	case testing.Short():
		rows, outage = 50_000, 2*time.Second
	}
	rows = number(t, soakEnv+"_ROWS", rows)
	if text := os.Getenv(soakEnv + "_OUTAGE"); text != "" {
		var err error
		if outage, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}

	w := newWorld(t, options{direct: true, unread: true})
	c := w.start()
	sender, _ := w.look()
	w.broker.Stop(t)
	began := time.Now()
	w.insertSeries(rows)
	t.Logf("%d rows committed in %s", rows, time.Since(began).Round(time.Millisecond))
	outlast := time.NewTimer(outage - time.Since(began))
	defer outlast.Stop()
	select {
	case <-outlast.C:
	case <-c.process.Exited():
	}
	c.running()
	during := c.peakRSS()

	w.broker.Resume(t)
	back := time.Now()
	w.wantSeries(rows)
	peak := c.peakRSS()
	t.Logf("%d events, %s without a broker: all delivered in %s after it; peak memory %.1f MiB during, %.1f MiB in all",
		rows, time.Since(began).Round(time.Second), time.Since(back).Round(time.Millisecond), mebibytes(during), mebibytes(peak))
	if peak > memoryLimit {
		t.Errorf("peak memory is %.1f MiB, want at most %.1f", mebibytes(peak), mebibytes(memoryLimit))
	}
	if now, _ := w.look(); now.pid != sender.pid {
		t.Errorf("the walsender is process %d, was %d: the replication connection did not stay up", now.pid, sender.pid)
	}
	c.stop()
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

// insertSeries inserts rows of about 600 bytes in a single transaction. The
// payload begins with the row's number, from 1; the key is the last two digits.
func (w *world) insertSeries(rows int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*patience)
	defer cancel()
	must.Get(w.sql.Exec(ctx, `INSERT INTO outbox SELECT gen_random_uuid(), 'order', (n % 100)::text, 'Placed', n || repeat(' payload', 64), ''
		FROM generate_series(1, $1::int) n`, rows))(w.t)
}

// wantSeries reads the rows of insertSeries: each once, those of a key in
// order.
func (w *world) wantSeries(rows int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	defer cancel()
	client := w.broker.Client(w.t, kgo.ConsumeTopics(topicOf("order")))
	defer client.Close()
	last := map[string]int{}
	for n := 0; n < rows; {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			w.t.Fatalf("%d of %d rows arrived", n, rows)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			n++
			var row int
			if _, err := fmt.Sscanf(string(r.Value[:min(len(r.Value), 20)]), "%d ", &row); err != nil {
				w.t.Fatalf("payload %.20q: %v", r.Value, err)
			}
			key := string(r.Key)
			if want := next(last, key); row != want {
				w.t.Fatalf("key %s: row %d comes after %d, want %d", key, row, last[key], want)
			}
			last[key] = row
		})
	}
	if n := w.seriesLength(); n != rows {
		w.t.Errorf("the topic has %d records, want %d", n, rows)
	}
}

// seriesLength is how many records the topic of the series has.
func (w *world) seriesLength() (n int) {
	for _, end := range w.ends()[topicOf("order")] {
		n += int(end)
	}
	return n
}

// next is the expected next row of the key.
func next(last map[string]int, key string) int {
	if row, ok := last[key]; ok {
		return row + 100
	}
	if key == "0" {
		return 100
	}
	var first int
	_, _ = fmt.Sscan(key, &first) // 0 is no row, and will be noticed
	return first
}
