package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/child"
	"github.com/cdc-outbox/cdc-outbox/internal/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/must"
	"github.com/cdc-outbox/cdc-outbox/internal/testserver"
)

// poolerEnv names a pgbouncer to test with, where PATH has none.
const poolerEnv = "CDC_OUTBOX_PGBOUNCER"

// Pooled starts a PgBouncer in transaction mode before the database of the URL, with
// so many connections to the server, and further settings of its own. It returns the
// URL of the database behind it. The test is skipped where there is no PgBouncer.
func Pooled(t testing.TB, direct string, connections int, settings ...string) (pooled string) {
	t.Helper()
	bin := os.Getenv(poolerEnv)
	if bin == "" {
		var err error
		if bin, err = exec.LookPath("pgbouncer"); err != nil {
			t.Skip("there is no pgbouncer; PATH or " + poolerEnv + " can name one")
		}
	}
	u := must.Get(url.Parse(direct))(t)
	port := must.Get(freeport.Take())(t)
	dir := must.Get(os.MkdirTemp("", "cdc-outbox-pooler-"))(t) //nolint:usetesting // another user must reach it
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
	cmd := exec.Command(bin, path)
	cmd.SysProcAttr = child.Attributes(syscall.SIGKILL)
	if os.Getuid() == 0 { // it does not run as root
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	pooler := must.Get(child.Start(cmd))(t)
	t.Cleanup(func() {
		testserver.Do(t, "stop PgBouncer", func(ctx context.Context) error { return pooler.Stop(ctx, syscall.SIGTERM) })
	})
	u.Host = fmt.Sprintf("127.0.0.1:%d", port)
	await.Until(t, "PgBouncer", func() bool {
		conn, err := pgx.Connect(t.Context(), u.String())
		if err != nil {
			return false
		}
		return conn.Close(t.Context()) == nil
	})
	return u.String()
}
