package metrics_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/metrics"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var errDown = errors.New("connection refused")

// observe tells the metrics of every possible event, once.
func observe(m *metrics.Metrics) {
	o, msg := m.Observer(), idempotency.Message{}
	for outcome := storage.Claimed; outcome <= storage.GivenUp; outcome++ {
		o.Claim(msg, storage.Claim{Outcome: outcome})
	}
	o.Claim(msg, storage.Claim{Outcome: storage.Duplicate, Layer: storage.LayerMemory})
	o.Run(msg, idempotency.Result{Disposition: idempotency.Handled, Attempt: 1}, nil, 20*time.Millisecond)
	o.Run(msg, idempotency.Result{Disposition: idempotency.Skipped}, nil, time.Millisecond)
	o.Run(msg, idempotency.Result{Disposition: idempotency.Retry, Attempt: 2}, errDown, time.Second)
	o.Run(msg, idempotency.Result{Disposition: idempotency.DeadLettered, Attempt: 3}, nil, time.Second)
	o.Run(msg, idempotency.Result{Disposition: idempotency.Elsewhere}, errDown, time.Millisecond)
	o.LeaseLost(idempotency.Loss{})
	o.ResultDropped(msg, 1<<20)
	o.DeadLetterFailed(msg, errDown)
	o.FailOpen(msg, errDown)
	o.Shadow(msg, idempotency.Result{Disposition: idempotency.Skipped}, nil)
	o.HandlerStuck(msg, true)
	o.HandlerStuck(msg, true)
	o.HandlerStuck(msg, false)
	o.StoreCall(storage.OpClaim, 300*time.Microsecond, nil)
	o.StoreCall(storage.OpExtend, 300*time.Microsecond, storage.ErrLeaseLost) // an answer
	o.StoreCall(storage.OpComplete, 3*time.Second, errDown)

	c := m.ConsumerObserver()
	c.Processed(&kgo.Record{Topic: "orders"}, idempotency.Result{Disposition: idempotency.Handled}, nil, 30*time.Millisecond)
	c.PausedPartitions(3)
	c.Committed(2*time.Millisecond, nil)
	c.Committed(time.Second, errDown)
	c.Abandoned(2)
}

// observed returns a registry with something of everything.
func observed(t *testing.T) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	m, err := metrics.New(registry)
	if err != nil {
		t.Fatal(err)
	}
	observe(m)
	return registry
}

func TestExposition(t *testing.T) {
	registry := observed(t)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&got, f); err != nil {
			t.Fatal(err)
		}
	}
	const golden = "testdata/exposition.txt"
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the exposition differs from %s; see -update. It is\n%s", golden, got.String())
	}
}

// TestLint applies promtool's rules.
func TestLint(t *testing.T) {
	registry := observed(t)
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestTableNamesAllMetrics compares the package's documentation with everything
// registered.
func TestTableNamesAllMetrics(t *testing.T) {
	registry := observed(t)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../../idempotency/metrics/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^//\t(idempotency_\w+)\s+(\w+)`).FindAllStringSubmatch(string(doc), -1) {
		documented[row[1]] = row[2]
	}
	for _, f := range families {
		if kind := strings.ToLower(f.GetType().String()); documented[f.GetName()] != kind {
			t.Errorf("%s is a %s, documented as %q", f.GetName(), kind, documented[f.GetName()])
		}
		delete(documented, f.GetName())
	}
	for name := range documented {
		t.Errorf("%s is documented, but does not exist", name)
	}
}

func TestNamesThatAreTaken(t *testing.T) {
	registry := prometheus.NewRegistry()
	if _, err := metrics.New(registry); err != nil {
		t.Fatal(err)
	}
	if _, err := metrics.New(registry); err == nil {
		t.Error("registered twice")
	}
}
