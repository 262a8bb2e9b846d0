package idempotency_test

import (
	"bytes"
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// mostLines is how long a loop around another client may be.
const mostLines = 20

func TestLoopsAroundOtherClientsAreShort(t *testing.T) {
	for _, client := range []string{"kafkago", "confluent"} {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, "../../examples/clients/"+client+"/consume.go", nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		lines := 0
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				lines += set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1
			}
		}
		if lines == 0 || lines > mostLines {
			t.Errorf("%s has %d lines, want 1 to %d", client, lines, mostLines)
		}
	}
}

// The loops around other clients of Kafka compile, in a module of their own: the
// clients are nobody else's dependencies.
func TestE2EOtherClientsCompile(t *testing.T) {
	withOtherClients(t)
	packages := []string{"./kafkago"}
	if strings.HasPrefix(inClients(t, "env", "CGO_ENABLED"), "1") {
		packages = append(packages, "./confluent")
	} else {
		t.Log("confluent-kafka-go needs a C compiler, and is left out")
	}
	inClients(t, append([]string{"build"}, packages...)...)
}

// The client segmentio/kafka-go returns everything aborted, and the markers of
// transactions. The loop around it handles each event once all the same.
// kfake's answers prove nothing here.
func TestE2EKafkaGoHandlesEachEventOnce(t *testing.T) {
	withOtherClients(t)
	program := filepath.Join(t.TempDir(), "kafkago.test")
	inClients(t, "test", "-c", "-o", program, "./kafkago")
	b := kafkatest.Start(t, kafkatest.Apache())
	b.CreateTopic(t, "orders", 1, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	client := b.Client(t, kgo.TransactionalID("orders"))
	for _, tx := range []struct {
		end    kgo.TransactionEndTry
		events []string
	}{
		{kgo.TryAbort, []string{"1", "2"}}, {kgo.TryCommit, []string{"1", "2"}},
		{kgo.TryAbort, []string{"3"}}, {kgo.TryAbort, []string{"3"}}, {kgo.TryCommit, []string{"3", "4"}},
		{kgo.TryCommit, []string{"5"}},
	} {
		must.OK(t, client.BeginTransaction())
		for _, id := range tx.events {
			r := &kgo.Record{Topic: "orders", Value: []byte(id), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}}}
			must.OK(t, client.ProduceSync(ctx, r).FirstErr())
		}
		must.OK(t, client.EndTransaction(ctx, tx.end))
	}

	cmd := exec.CommandContext(ctx, program, "-test.v")
	cmd.Env = append(os.Environ(), "CDC_OUTBOX_TEST_BROKER="+b.Brokers[0], "CDC_OUTBOX_TEST_EVENTS=1 2 3 4 5")
	out, err := cmd.CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("--- SKIP")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// withOtherClients skips the test where the other clients cannot be had.
func withOtherClients(t *testing.T) {
	t.Helper()
	if out, err := goInClients(t, "mod", "download"); err != nil {
		t.Skipf("the clients cannot be had: %s", out)
	}
}

// inClients is go's output in the other clients' module.
func inClients(t *testing.T, args ...string) string {
	t.Helper()
	out, err := goInClients(t, args...)
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func goInClients(t *testing.T, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // the first run may have to compile them
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = "../../examples/clients"
	cmd.Env = append(os.Environ(), "GOWORK=off")
	return cmd.CombinedOutput()
}
