package pgtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgserver"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// Freeze suspends processes of the server at url, as on a hanging machine: they take
// bytes and say nothing. where, a condition on pg_stat_activity, selects the processes.
// They go on when thaw is called, or the test ends. The server sends the signals, so
// the processes may be in a container.
func Freeze(t testing.TB, url, where string) (thaw func()) {
	t.Helper()
	var pids []int
	connected(t, url, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if pids, err = processes(ctx, conn, where); err != nil {
			return err
		}
		return kill(ctx, conn, "STOP", pids)
	})
	if len(pids) == 0 {
		t.Fatalf("there is no process to freeze where %s", where)
	}
	thaw = sync.OnceFunc(func() {
		testserver.Do(t, "let processes of PostgreSQL go on", func(ctx context.Context) error {
			conn, err := pgx.Connect(ctx, url)
			if err != nil {
				return nil // a stopped server has ended them
			}
			defer conn.Close(ctx)
			return kill(ctx, conn, "CONT", pids)
		})
	})
	t.Cleanup(thaw)
	return thaw
}

func processes(ctx context.Context, conn *pgx.Conn, where string) ([]int, error) {
	rows, _ := conn.Query(ctx, `SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND `+where)
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

// kill has the server send a signal to processes of its own. An ended process
// needs nothing.
func kill(ctx context.Context, conn *pgx.Conn, signal string, pids []int) error {
	for _, pid := range pids {
		command := fmt.Sprintf(`COPY (SELECT 1 WHERE false) TO PROGRAM 'kill -%s %d 2>/dev/null || true'`, signal, pid)
		if _, err := conn.Exec(ctx, command); err != nil {
			return err
		}
	}
	return nil
}

// Pause freezes all processes of the server, like a suspended machine. New
// connections are taken by the system, and get no answer.
func (s *Server) Pause(t testing.TB) (thaw func()) {
	t.Helper()
	var resumes func()
	if c, ok := s.server.(contained); ok {
		if err := c.Pause(); err != nil {
			t.Fatal(err)
		}
		resumes = func() {
			if err := c.Continue(); err != nil {
				t.Error(err)
			}
		}
	} else {
		resumes = s.suspend(t)
	}
	thaw = sync.OnceFunc(resumes)
	t.Cleanup(thaw)
	return thaw
}

// suspend freezes the processes of a server of this machine.
func (s *Server) suspend(t testing.TB) (resumes func()) {
	t.Helper()
	var pids []int
	connected(t, s.URL("postgres"), func(ctx context.Context, conn *pgx.Conn) error {
		main, err := pgserver.Postmaster(ctx, conn)
		if err != nil {
			return err
		}
		stop(t, main) // no other processes are started then
		others, err := processes(ctx, conn, "true")
		pids = append([]int{main}, others...)
		if err != nil {
			resume(pids)
		}
		return err
	})
	stop(t, pids...)
	return func() { resume(pids) }
}

func stop(t testing.TB, pids ...int) {
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Errorf("freeze process %d: %v", pid, err)
		}
	}
}

// resume lets processes go on, the last first. An ended process needs nothing.
func resume(pids []int) {
	for _, pid := range slices.Backward(pids) {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}
