package demo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect is the connector the program gives the demo.
func connect(t *testing.T) func(context.Context, *config.Config) error {
	return func(ctx context.Context, cfg *config.Config) error {
		return pipeline.Run(ctx, pipeline.Options{
			Config: cfg, Log: zaptest.NewLogger(t), Stdout: io.Discard,
		})
	}
}

func TestRunEndsAfterEventsWithATrueSummary(t *testing.T) {
	var out bytes.Buffer
	if err := Run(t.Context(), Options{Events: 20, Out: &out, Connect: connect(t)}); err != nil {
		t.Fatalf("%v, after\n%s", err, &out)
	}
	must.Contain(t, out.String(),
		"20 committed, 20 arrived",
		"2 transactions, never seen in Kafka",
		"ROLLBACK",
		"header     eventType = OrderPlaced",
		"psql 'postgres://",
		"kcat -b 127.0.0.1:",
	)
	for line := range strings.Lines(out.String()) {
		if n := columns(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// watcher ends the demo once it shows a text.
type watcher struct {
	bytes.Buffer
	text string
	seen context.CancelFunc
}

func (w *watcher) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(w.text)) {
		w.seen()
	}
	return w.Buffer.Write(p)
}

func TestE2EInterruptEndsInGoodOrder(t *testing.T) {
	for name, when := range map[string]string{
		"while orders are placed":    "OrderPaid",
		"while it starts":            "✓ a Kafka broker",
		"before PostgreSQL is there": "Starting",
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := &watcher{text: when, seen: cancel}
			if err := Run(ctx, Options{Out: out, Connect: connect(t)}); err != nil {
				t.Errorf("%v, after\n%s", err, out)
			}
		})
	}
}

func TestConnectorsErrorIsTheDemos(t *testing.T) {
	broken := errors.New("broken")
	err := Run(t.Context(), Options{Events: 1, Out: io.Discard, Connect: func(context.Context, *config.Config) error {
		return broken
	}})
	if !errors.Is(err, broken) {
		t.Errorf("error = %v, want %v", err, broken)
	}
}

func TestPause(t *testing.T) {
	for events, want := range map[int]time.Duration{0: endlessPause, maxShown: shortPause, maxShown + 1: 0} {
		r := &run{Options: Options{Events: events}}
		if got := r.pause(); got != want {
			t.Errorf("pause with %d events = %v, want %v", events, got, want)
		}
	}
}
