package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// poolerEnv names a pgbouncer to test with, where PATH has none.
const poolerEnv = "CDC_OUTBOX_PGBOUNCER"

// Pooled starts a PgBouncer in transaction mode before the database of the URL, with so
// many connections to the server, and further settings of PgBouncer. Pooled returns the
// database's URL through PgBouncer. The test is skipped where there is no PgBouncer.
func Pooled(t testing.TB, direct string, connections int, settings ...string) (pooled string) {
	t.Helper()
	bin := os.Getenv(poolerEnv)
	if bin == "" {
		var err error
		if bin, err = exec.LookPath("pgbouncer"); err != nil {
			testserver.Absent(t, "PgBouncer", fmt.Errorf("PATH or %s can name one: %w", poolerEnv, err))
		}
	}
	version := must.Get(child.Output(t.Context(), "", bin, "--version"))(t)
	version, _, _ = strings.Cut(strings.TrimPrefix(version, "PgBouncer "), "\n") // PgBouncer 1.18.0
	testserver.Used("PgBouncer", version+" (local)")
	u := must.Get(url.Parse(direct))(t)
	port := must.Get(freeport.Take())(t)
	dir := must.Get(os.MkdirTemp("", "cdc-outbox-pooler-"))(t) //nolint:usetesting // another user must reach the directory
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	password, _ := u.User.Password()
	text := fmt.Sprintf("[databases]\n* = host=%s port=%s user=%s password=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = %d\n",
		u.Hostname(), u.Port(), u.User.Username(), password, port, connections)
	for _, setting := range settings {
		text += setting + "\n"
	}
	path := filepath.Join(dir, "pgbouncer.ini")
	must.OK(t, os.Chmod(dir, 0o755))
	must.OK(t, os.WriteFile(path, []byte(text), 0o644))
	pooler := &child.Server{Name: "PgBouncer", Log: filepath.Join(dir, "log"), Port: port, Command: func() (*exec.Cmd, error) {
		cmd := exec.Command(bin, path)
		if os.Getuid() == 0 { // PgBouncer refuses to run as root
			cmd.SysProcAttr = child.Attributes(syscall.SIGKILL)
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
		}
		return cmd, nil
	}}
	u.Host = pooler.Addr()
	pooler.Answers = func(ctx context.Context) error { return connect(ctx, u.String()) }
	testserver.DoStart(t, "start PgBouncer", pooler.Resume)
	t.Cleanup(func() {
		testserver.Do(t, "stop PgBouncer", func(ctx context.Context) error { return pooler.Stop(ctx, syscall.SIGTERM) })
	})
	return u.String()
}
