package pgtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/pgserver"
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
	suspend(t, pids)
	thaw = sync.OnceFunc(func() { resume(pids) })
	t.Cleanup(thaw)
	return thaw
}

func suspend(t testing.TB, pids []int) {
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Errorf("freeze process %d: %v", pid, err)
		}
	}
}

// resume lets processes go on, the last first. One that has ended needs nothing.
func resume(pids []int) {
	for _, pid := range slices.Backward(pids) {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// Pause freezes all processes of the server, as a machine that is suspended. New
// connections are taken by the system, and get no answer. It returns false, and
// does nothing, where the processes are not on this machine.
func (s *Server) Pause(t testing.TB) (thaw func(), ok bool) {
	t.Helper()
	if useDocker() {
		return nil, false
	}
	var pids []int
	connected(t, s.URL("postgres"), func(ctx context.Context, conn *pgx.Conn) (err error) {
		main, err := pgserver.Postmaster(ctx, conn)
		if err != nil {
			return err
		}
		suspend(t, []int{main}) // it starts no others then
		rows, _ := conn.Query(ctx, `SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()`)
		pids, err = pgx.CollectRows(rows, pgx.RowTo[int])
		pids = append([]int{main}, pids...)
		if err != nil {
			resume(pids)
		}
		return err
	})
	suspend(t, pids)
	thaw = sync.OnceFunc(func() { resume(pids) })
	t.Cleanup(thaw)
	return thaw, true
}
