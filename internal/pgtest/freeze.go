package pgtest

import (
	"context"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Freeze has the processes of the server at url for which where holds, a
// condition on pg_stat_activity, take what they are sent and say nothing, as
// those of a machine that hangs. They go on when thaw is called, or the test ends.
func Freeze(t testing.TB, url, where string) (thaw func()) {
	t.Helper()
	if useDocker() {
		t.Skip("the server's processes are not on this machine")
	}
	var pids []int
	connected(t, url, func(ctx context.Context, conn *pgx.Conn) (err error) {
		rows, _ := conn.Query(ctx, `SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND `+where)
		pids, err = pgx.CollectRows(rows, pgx.RowTo[int])
		return err
	})
	if len(pids) == 0 {
		t.Fatalf("there is no process to freeze where %s", where)
	}
	signal := func(sig syscall.Signal) {
		for _, pid := range pids {
			if err := syscall.Kill(pid, sig); err != nil && sig == syscall.SIGSTOP {
				t.Errorf("freeze process %d: %v", pid, err)
			}
		}
	}
	signal(syscall.SIGSTOP)
	thaw = sync.OnceFunc(func() { signal(syscall.SIGCONT) })
	t.Cleanup(thaw)
	return thaw
}
