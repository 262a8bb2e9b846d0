package e2e

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/docblocks"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgserver"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// TestE2EReadmeOnYourOwnDatabase types the README's commands, with other hosts,
// ports and passwords: at most six lines lead from a server with only the
// database app to the first event.
func TestE2EReadmeOnYourOwnDatabase(t *testing.T) {
	said := docblocks.Section(t, "../README.md", "## In front of your own database")
	lines := strings.Split(strings.TrimSpace(said["sh"]), "\n")
	if len(lines) > 6 || said["yaml"] == "" {
		t.Fatalf("the README has a configuration of %d bytes and these commands:\n%s", len(said["yaml"]), said["sh"])
	}

	server := pgtest.Start(t)
	server.Exec(t, "CREATE DATABASE app")
	broker := kafkatest.Start(t)
	own := strings.NewReplacer(
		"postgres://postgres:secret@db.example.com:5432/app", server.URL("app"),
		"db.example.com:5432", hostOf(t, server.URL("app")),
		"kafka-1.example.com:9092", broker.Brokers[0],
	)
	theirs := func(text string) string {
		text = own.Replace(text)
		if strings.Contains(text, "example.com") {
			t.Fatalf("a host is left in:\n%s", text)
		}
		return text
	}
	here := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(here, "cdc-outbox.yaml"), []byte(theirs(said["yaml"])), 0o600))
	must.OK(t, os.Mkdir(filepath.Join(here, "bin"), 0o700))
	must.OK(t, os.Symlink(binary, filepath.Join(here, "bin", "cdc-outbox")))

	began := time.Now()
	typeLines(t, here, theirs(said["sh"]))
	event := broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(1))[0]
	t.Logf("first event after %s and %d commands", time.Since(began).Round(time.Millisecond), len(lines))
	if string(event.Key) != "1" || string(event.Value) != `{"total": 24900}` {
		t.Errorf("got %s: %s", event.Key, event.Value)
	}
}

// typeLines has a shell run the lines in a directory, which must succeed.
// Processes they leave running are ended with the test.
func typeLines(t *testing.T, dir, lines string) {
	t.Helper()
	log := must.Get(os.Create(filepath.Join(dir, "log")))(t)
	defer log.Close()
	cmd := exec.Command("sh", "-eux", "-c", lines)
	cmd.Dir = dir
	cmd.Env = append(environment(t), "PATH="+pathWithPsql(t), "CDC_OUTBOX_HTTP_LISTEN=127.0.0.1:0")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must.OK(t, cmd.Start())
	group := -cmd.Process.Pid
	t.Cleanup(func() {
		_ = syscall.Kill(group, syscall.SIGTERM)
		await.Until(t, "end of what was typed", func() bool { return syscall.Kill(group, 0) != nil })
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s", text)
		}
	})
	if err := cmd.Wait(); err != nil {
		t.Fatalf("what the README says fails: %v", err)
	}
}

// pathWithPsql is PATH, with the server's own programs at the end. Some builds
// of PostgreSQL come without psql.
func pathWithPsql(t *testing.T) string {
	t.Helper()
	path := os.Getenv("PATH")
	if bin, err := pgserver.Find(); err == nil {
		path += string(os.PathListSeparator) + bin
	}
	t.Setenv("PATH", path)
	if _, err := exec.LookPath("psql"); err != nil {
		t.Skip("there is no psql")
	}
	return path
}

// hostOf is the host and port of a URL.
func hostOf(t testing.TB, text string) string {
	t.Helper()
	return must.Get(url.Parse(text))(t).Host
}
