package metrics

import (
	"errors"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/stream"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

var _ stream.Metrics = (*Metrics)(nil)

var update = flag.Bool("update", false, "rewrite the golden file")

// TestExposition plays a short life and compares everything that Prometheus
// would see of our own metrics, names and help texts included.
func TestExposition(t *testing.T) {
	set := New("1.2.3", "abcdef0")
	m := set.Pipeline("")
	commit := time.Now().Add(-20 * time.Hour)
	m.Published([]*transform.Event{
		event("orders", "key", commit), event("orders", "k", time.Now().Add(time.Hour)),
		event("customers", "", time.Time{}), event("orders", "key", commit),
	})
	m.Published(nil)
	m.DeadLettered(transform.ReasonNullKey)
	m.Skipped(transform.ReasonIllegalTopic)
	m.Warned(transform.WarningNoTrace)
	m.Ignored("update")
	m.Reconnected("postgres")
	m.Role("active")
	m.Phase("replaying", "ready")
	m.PartitionsGrown("orders")
	m.TopicRemade("orders")
	m.TopicsMissing(2)
	m.TopicsUnusable(1)
	m.CredentialsUnusable(1)
	m.Throttled(1500 * time.Millisecond)
	m.CheckpointSaved(nil)
	m.CheckpointSaved(errors.New("no"))
	m.Slot(catalog.Slot{ConfirmedFlush: 0x1000, RestartLSN: 0x800}, 0x1800, 3*time.Second)
	m.Observe(lsn(0x2000), lsn(0x1000), number(7), number(700))
	m.ObserveUnconfirmed(func() time.Duration { return 4 * time.Second })
	m.ObserveInvisible(func() time.Duration { return 2 * time.Second })
	m.ObserveReady(func() bool { return true })
	m.ObserveCheckpoint(func() time.Duration { return 1500 * time.Millisecond })
	m.ObserveRepair(func() (int64, int64) { return 30, 2 })
	m.ObserveGap(func() time.Duration { return time.Hour })
	m.ObserveSnapshot(func() (int64, int64) { return 5, 8 })

	m.Connected("kafka", true)
	m.Transaction()
	m.Split()
	m.Capacity(8 << 20)
	m.Snapshot(true)
	m.SnapshotRow()
	m.TransactionCommitted(3, 1000, 20*time.Millisecond)
	m.TransactionCommitted(100, 2<<20, time.Minute)
	m.TransactionAborted()
	m.TransactionAborted()
	m.BeganAnew(false)
	m.BeganAnew(false)
	m.BeganAnew(true)
	m.HeldBack(5, 1500*time.Millisecond)

	if got := testutil.ToFloat64(m.lastEvent); got < float64(commit.Unix()) || got > float64(commit.Unix()+1) {
		t.Errorf("the last event is of %v, want %v", got, commit)
	}
	m.lastEvent.Set(0) // the rest is the same at any time
	var got strings.Builder
	for line := range strings.Lines(exposition(t, set.Gatherer())) {
		// Sums of latencies and the Go version are not ours to fix.
		if strings.Contains(line, "cdc_outbox_") && !strings.Contains(line, "latency_seconds_sum") && !strings.Contains(line, "build_info{") {
			got.WriteString(line)
		}
	}
	compare(t, "testdata/exposition.golden", got.String())
}

func TestContractNamesExistFromTheStart(t *testing.T) {
	set := New("", "")
	set.Pipeline("")
	text := exposition(t, set.Gatherer())
	for _, name := range []string{
		"bytes_published_total", "publish_latency_seconds_count", "received_lsn", "confirmed_lsn", "slot_lag_bytes",
		"slot_retained_bytes", "slot_lag_seconds", "in_flight_events", "in_flight_bytes",
		"checkpoint_age_seconds 0",
		`reconnects_total{side="kafka"}`, `role{role="starting"} 1`, "slot_safe_wal_bytes NaN", "build_info{",
	} {
		if !strings.Contains(text, "\ncdc_outbox_"+name) {
			t.Errorf("no cdc_outbox_%s", name)
		}
	}
	if !strings.Contains(text, "\ngo_goroutines ") || !strings.Contains(text, "\nprocess_resident_memory_bytes ") {
		t.Error("the runtime's or the process's metrics are missing")
	}
}

func TestBacklogExistsOnceItWasLookedAt(t *testing.T) {
	set := New("", "")
	m := set.Pipeline("")
	if strings.Contains(exposition(t, set.Gatherer()), "unpublished") {
		t.Error("a stream shows a backlog")
	}
	m.Backlog(7, time.Second)
	m.Backlog(8, 1500*time.Millisecond)
	must.Contain(t, exposition(t, set.Gatherer()), "\ncdc_outbox_unpublished_rows 8\n", " 1.5\n")
	m.BacklogUnknown()
	must.Contain(t, exposition(t, set.Gatherer()), "\ncdc_outbox_unpublished_rows NaN\n", "\ncdc_outbox_oldest_unpublished_seconds NaN\n")
}

// The age is the moment's, so the golden file cannot have it.
func TestAgeOfTheOpenTransaction(t *testing.T) {
	set := New("", "")
	m := set.Pipeline("")
	age := func() string {
		_, rest, _ := strings.Cut(exposition(t, set.Gatherer()), "\ncdc_outbox_transaction_age_seconds ")
		value, _, _ := strings.Cut(rest, "\n")
		return value
	}
	m.TransactionOpen(time.Now().Add(-time.Hour))
	if seconds := must.Get(strconv.ParseFloat(age(), 64))(t); seconds < 3600 {
		t.Errorf("one that was opened an hour ago is %v seconds old", seconds)
	}
	m.TransactionOpen(time.Time{})
	if got := age(); got != "0" {
		t.Errorf("the age is %s though none is open", got)
	}
}

func TestLatencyIsNeverNegative(t *testing.T) {
	set := New("", "")
	set.Pipeline("").Published([]*transform.Event{event("orders", "", time.Now().Add(time.Hour))})
	if text := exposition(t, set.Gatherer()); !strings.Contains(text, "\ncdc_outbox_publish_latency_seconds_sum 0\n") {
		t.Error("a commit in this clock's future counts as a negative latency")
	}
}

func TestSlot(t *testing.T) {
	limit, exceeded := int64(4096), int64(-1)
	for _, tt := range []struct {
		name                string
		slot                catalog.Slot
		lag, retained, safe string
	}{
		{"without a limit", catalog.Slot{ConfirmedFlush: 100, RestartLSN: 50}, "900", "950", "+Inf"},
		{"with a limit", catalog.Slot{ConfirmedFlush: 1000, RestartLSN: 999, SafeWALSize: &limit}, "0", "1", "4096"},
		{"over the limit", catalog.Slot{ConfirmedFlush: 1, RestartLSN: 1, SafeWALSize: &exceeded}, "999", "999", "0"},
		{"lost", catalog.Slot{WALStatus: "lost"}, "0", "0", "0"},
		{"moved on since", catalog.Slot{ConfirmedFlush: 2000, RestartLSN: 2000}, "0", "0", "+Inf"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set := New("", "")
			set.Pipeline("").Slot(tt.slot, 1000, 0)
			text := exposition(t, set.Gatherer())
			for name, want := range map[string]string{"lag": tt.lag, "retained": tt.retained, "safe_wal": tt.safe} {
				if line := "\ncdc_outbox_slot_" + name + "_bytes " + want + "\n"; !strings.Contains(text, line) {
					t.Errorf("no line %q", line)
				}
			}
		})
	}
}

func TestPipelinesDoNotShareNumbers(t *testing.T) {
	set := New("", "")
	set.Pipeline("orders").Role("active")
	set.Pipeline("billing").Role("failed")
	text := exposition(t, set.Gatherer())
	for _, line := range []string{
		`role{pipeline="orders",role="active"} 1`, `role{pipeline="orders",role="failed"} 0`,
		`role{pipeline="billing",role="active"} 0`, `role{pipeline="billing",role="failed"} 1`,
		`in_flight_events{pipeline="orders"} 0`,
	} {
		if !strings.Contains(text, "\ncdc_outbox_"+line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
}

func TestNamesFollowPrometheusConventions(t *testing.T) {
	set := New("v", "c")
	set.Pipeline("orders")
	problems := must.Get(testutil.GatherAndLint(set.Gatherer()))(t)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// BenchmarkPublished shows the cost for each event of a delivery.
func BenchmarkPublished(b *testing.B) {
	m := New("", "").Pipeline("")
	events := make([]*transform.Event, 1000)
	for i := range events {
		events[i] = event([]string{"orders", "customers"}[i/100%2], "key", time.Now())
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		m.Published(events)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
}

func event(topic, key string, commit time.Time) *transform.Event {
	ev := &transform.Event{CommitTime: commit}
	ev.Record.Topic, ev.Record.Key = topic, []byte(key)
	return ev
}

func lsn(v pg.LSN) func() pg.LSN { return func() pg.LSN { return v } }

func number(v int64) func() int64 { return func() int64 { return v } }

func exposition(t *testing.T, g prometheus.Gatherer) string {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(g, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	return answer.Body.String()
}

func compare(t *testing.T, golden, got string) {
	t.Helper()
	if *update {
		must.OK(t, os.WriteFile(golden, []byte(got), 0o644))
		return
	}
	want := must.Get(os.ReadFile(golden))(t)
	if got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// A route giving each aggregate a separate topic makes no series for each.
func TestTopicsAreBounded(t *testing.T) {
	m := New("", "").Pipeline("")
	for n := range 3 * mostTopics {
		topic := fmt.Sprintf("order-%d", n)
		m.Published([]*transform.Event{event(topic, "k", time.Time{})})
		m.PartitionsGrown(topic)
	}
	for _, series := range []*prometheus.CounterVec{m.published.vec, m.partitionsGrown.vec} {
		if got := testutil.CollectAndCount(series); got != mostTopics+1 {
			t.Errorf("%d series, want %d and one for the others", got, mostTopics)
		}
		if got := testutil.ToFloat64(series.WithLabelValues(otherTopics)); got != 2*mostTopics {
			t.Errorf("%v of other topics, want %d", got, 2*mostTopics)
		}
	}
}
