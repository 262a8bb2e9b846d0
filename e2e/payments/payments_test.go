package payments

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/dynamoserver"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redisserver"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// TestE2EEachOrderShipsOnce plays the flow with each store.
func TestE2EEachOrderShipsOnce(t *testing.T) {
	connector := filepath.Join(t.TempDir(), "cdc-outbox")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", connector, "../../cmd/cdc-outbox").CombinedOutput(); err != nil {
		t.Fatalf("build the connector: %v: %s", err, out)
	}
	t.Run("interrupted", func(t *testing.T) { playInterrupted(t, connector) })
	for _, store := range []storeKind{inRedis, inPostgres, inDynamoDB, inMemory} {
		t.Run(string(store), func(t *testing.T) {
			need(t, store)
			opts := options{store: store, orders: 40, kills: 4, connector: connector, logs: t.TempDir()}
			var out bytes.Buffer
			err := play(t.Context(), opts, &out)
			if err != nil || !strings.HasSuffix(out.String(), "each order shipped once\n") {
				t.Errorf("play = %v\n%s", err, out.String())
				showLogs(t, opts.logs)
			}
		})
	}
}

// playInterrupted interrupts the play after the first kill, as Ctrl-C does.
func playInterrupted(t *testing.T, connector string) {
	opts := options{store: inMemory, orders: 200, kills: 12, connector: connector, logs: t.TempDir()}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out := &watched{text: "killed orders", seen: interrupt}
	if err := play(ctx, opts, out); !errors.Is(err, context.Canceled) {
		t.Errorf("play = %v, want %v", err, context.Canceled)
	}
	if strings.Contains(out.String(), "shipped") {
		t.Errorf("an interrupted play is judged:\n%s", out.String())
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// watched calls seen when the text was written.
type watched struct {
	bytes.Buffer
	text string
	seen func()
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if strings.Contains(w.String(), w.text) {
		w.seen()
	}
	return n, err
}

// need skips the test where the store's server is not available.
func need(t *testing.T, store storeKind) {
	t.Helper()
	switch store {
	case inRedis:
		if _, err := redisserver.Ensure(t.Context(), io.Discard); err != nil {
			testserver.Absent(t, "Redis", err)
		}
	case inDynamoDB:
		server, err := dynamoserver.Start(t.Context())
		if errors.Is(err, dynamoserver.ErrNotToBeHad) {
			testserver.Absent(t, "DynamoDB Local", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = server.Close()
	}
}

func showLogs(t *testing.T, dir string) {
	logs, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, path := range logs {
		if text, err := os.ReadFile(path); err == nil {
			t.Logf("%s:\n%s", filepath.Base(path), text)
		}
	}
}
