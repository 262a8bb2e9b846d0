package poll_test

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/child"
	"github.com/cdc-outbox/cdc-outbox/internal/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// poolerEnv names a pgbouncer to test with, where PATH has none.
const poolerEnv = "CDC_OUTBOX_PGBOUNCER"

// TestThroughAPooler puts PgBouncer in transaction mode between: a session is
// another one from one transaction to the next, and notifications do not arrive.
func TestThroughAPooler(t *testing.T) {
	bin := os.Getenv(poolerEnv)
	if bin == "" {
		var err error
		if bin, err = exec.LookPath("pgbouncer"); err != nil {
			t.Skip("there is no pgbouncer; PATH or " + poolerEnv + " can name one")
		}
	}
	w := newWorld(t, nil, serialOutbox, serialIndex)
	w.pool(bin)
	w.parts.BatchSize = 20
	instances := []*instance{w.start(nil), w.start(nil), w.start(nil)}
	w.series(0, 1000, 5)
	w.published(1000)
	for _, in := range instances {
		if in.status().Notifications {
			t.Error("notifications are said to arrive")
		}
		if err := in.stop(); err != nil {
			t.Error(err)
		}
	}
	w.wantInOrder(5, 1000)
}

// pool has instances connect through a pooler with two connections for all.
func (w *world) pool(bin string) {
	w.t.Helper()
	direct := must.Get(url.Parse(w.parts.URL))(w.t)
	port := must.Get(freeport.Take())(w.t)
	dir := must.Get(os.MkdirTemp("", "cdc-outbox-pooler-"))(w.t) // which another user can reach
	w.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	password, _ := direct.User.Password()
	path := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\n* = host=%s port=%s user=%s password=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 2\n",
		direct.Hostname(), direct.Port(), direct.User.Username(), password, port)
	for _, err := range []error{os.Chmod(dir, 0o755), os.WriteFile(path, []byte(text), 0o644)} {
		if err != nil {
			w.t.Fatal(err)
		}
	}
	cmd := exec.Command(bin, path)
	cmd.SysProcAttr = child.Attributes(syscall.SIGKILL)
	if os.Getuid() == 0 { // it does not run as root
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	pooler := must.Get(child.Start(cmd))(w.t)
	w.t.Cleanup(func() {
		ctx := w.ctx()
		if err := pooler.Stop(ctx, syscall.SIGTERM); err != nil {
			w.t.Error(err)
		}
	})
	direct.Host = fmt.Sprintf("127.0.0.1:%d", port)
	pooled := direct.String()
	w.await("the pooler", func() bool {
		conn, err := pgx.Connect(w.ctx(), pooled)
		if err != nil {
			return false
		}
		return conn.Close(w.ctx()) == nil
	})
	w.parts.URL = pooled
	w.parts.MaxInterval = 20 * time.Millisecond
}
