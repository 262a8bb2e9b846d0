package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Each metric of Kafka transactions moves when its event happens.
func TestE2EExactlyOnceMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{exactlyOnce: true}.refusing(50_000))
	c := w.serve()
	c.awaitLog(w.started())
	load := w.write(seed(t), 8*time.Millisecond, 50_000)

	c.awaitMetric("transaction_commit_seconds_sum", 0)
	await.Until(t, "transactions with more than the checkpoint", func() bool {
		return c.metric("transaction_records_sum") > c.metric("transaction_commit_seconds_count")
	})
	await.Until(t, "the bytes of records", func() bool { // an id alone has more than sixteen
		return c.metric("transaction_bytes_sum") > 16*c.metric("transaction_records_sum")
	})
	c.awaitMetric("transactions_aborted_total", 0) // by a refused event

	goOn := w.holdEnd(c.connector)
	age := c.awaitMetric("transaction_age_seconds", 0)
	c.awaitMetric("transaction_age_seconds", age)
	goOn()

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	other := w.broker.Client(t, kgo.TransactionalID("other"), kgo.TransactionTimeout(5*time.Minute))
	must.OK(t, other.BeginTransaction())
	must.OK(t, other.ProduceSync(ctx, &kgo.Record{Topic: topicOf(aggregates[0]), Value: []byte("aborted")}).FirstErr())
	c.awaitMetric("stable_offset_held_seconds", 0)
	c.awaitMetric("stable_offset_lag_records", 0)
	must.OK(t, other.EndTransaction(ctx, kgo.TryAbort))
	c.awaitNone("stable_offset_held_seconds")

	spare, anew := w.serve(), c.metric("begun_anew_total")
	w.takeOver(spare.connector, c.connector)
	c.awaitMetric("begun_anew_total", anew)

	fenced := spare.metric("fenced_total")
	await.Until(t, "a claim of the transactional id", func() bool { // brokers first abort the open transaction
		_, _, err := w.broker.Claim(t.Context(), t, w.transactionalID())
		return err == nil
	})
	spare.awaitMetric("fenced_total", fenced)

	load.stop()
	w.arrived()
	c.awaitNone("transaction_age_seconds")
	spare.awaitNone("transaction_age_seconds")
	_, report := w.finish(load, c.connector, spare.connector)
	w.wantNoneAgain(report, "to consumers that read what is committed")
}

// served is a connector answering over HTTP.
type served struct {
	*connector
	address string
}

// serve starts a connector answering over HTTP, without a wait.
func (w *world) serve() served {
	w.t.Helper()
	address := must.Get(freeport.TakeAddress())(w.t)
	text := string(must.Get(os.ReadFile(w.config))(w.t))
	config := filepath.Join(w.t.TempDir(), "cdc-outbox.yaml")
	must.OK(w.t, os.WriteFile(config, []byte(strings.Replace(text, `listen: ""`, "listen: "+address, 1)), 0o600))
	return served{startConnector(w.t, config), address}
}

// metric is the value of a metric in /metrics; name includes the labels, if any.
func (s served) metric(name string) float64 {
	s.t.Helper()
	value, ok := s.lookUp(name)
	if !ok {
		s.t.Fatalf("/metrics has no %s", name)
	}
	return value
}

// lookUp is metric for a name maybe missing.
func (s served) lookUp(name string) (value float64, ok bool) {
	s.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	answer, err := client.Get("http://" + s.address + "/metrics")
	must.OK(s.t, err)
	defer func() { _ = answer.Body.Close() }()
	text := must.Get(io.ReadAll(answer.Body))(s.t)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "cdc_outbox_"+name+" "); ok {
			return must.Get(strconv.ParseFloat(strings.TrimSpace(value), 64))(s.t), true
		}
	}
	return 0, false
}

// awaitMetric returns the metric once greater than before.
func (s served) awaitMetric(name string, before float64) (now float64) {
	s.t.Helper()
	await.Until(s.t, fmt.Sprintf("%s of more than %v", name, before), func() bool {
		s.running()
		now = s.metric(name)
		return now > before
	})
	return now
}

// awaitNone returns once the metric is 0.
func (s served) awaitNone(name string) {
	s.t.Helper()
	await.Until(s.t, name+" to be 0", func() bool { s.running(); return s.metric(name) == 0 })
}
