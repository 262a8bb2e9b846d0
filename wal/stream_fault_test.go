package wal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
)

// The tests of faults between the server and us.

// through puts a fault proxy before the source's replication connections.
func (s *source) through(t *testing.T) *proxy.Proxy {
	t.Helper()
	p, behind := pgtest.Behind(t, s.url)
	s.url = behind + "?sslmode=disable"
	return p
}

// walsender is a subquery for our stream's process.
func (s *source) walsender() string {
	return `(SELECT active_pid FROM pg_replication_slots WHERE slot_name = '` + s.options.Slot + `')`
}

// Failure mode 3.
func TestStreamEndsWithItsWalsender(t *testing.T) {
	s := newSource(t, pgtest.Shared(t), `CREATE TABLE t (id int)`)
	s.exec(t, `INSERT INTO t VALUES (1)`)
	r := s.open(t, 0)
	end := commitOf(t, r.upToCommit(t)).End
	r.Confirm(end)
	failed := r.failing(t)
	s.exec(t, `SELECT pg_terminate_backend(`+s.walsender()+`, 10000)`, `INSERT INTO t VALUES (2)`)
	if err := <-failed; pgsql.State(err) != pgerrcode.AdminShutdown || failure.ClassOf(err) != failure.Transient {
		t.Errorf("next: %v; want a transient error of state %s", err, pgerrcode.AdminShutdown)
	}
	if _, err := r.Next(pgtest.Context(t)); err == nil {
		t.Error("Next succeeded after it had failed")
	}
	r = s.open(t, end)
	wantLines(t, r.all(t, s), []string{"insert public.t id=2", "commit"})
	r.close(t)
}

// Failure mode 15, and the server's half.
func TestStreamNoticesAHalfOpenConnection(t *testing.T) {
	s := newSource(t, pgtest.Shared(t))
	p := s.through(t)
	r := s.open(t, 0)
	r.until(t, func(m *Message) bool { return m.Kind == Keepalive })
	p.Set(proxy.Down, proxy.Fault{Swallow: true})
	r.liveness = 200 * time.Millisecond // from the next context on: no server must be as quick
	if err := r.failure(t); !errors.Is(err, os.ErrDeadlineExceeded) || failure.ClassOf(err) != failure.Transient {
		t.Errorf("next: %v; want a deadline exceeded", err)
	}
}

// A server with nothing to send answers each request for a reply; see
// TestStreamOutlivesIdleness.
func TestIdleServerAnswers(t *testing.T) {
	s := newSource(t, pgtest.Shared(t))
	r := s.open(t, 0)
	answers := 0
	r.until(t, func(m *Message) bool {
		if m.Kind == Keepalive {
			answers++
		}
		return answers == 10
	})
	r.close(t)
}

// Failure mode 16.
func TestStreamSurvivesTornAndDamagedBytes(t *testing.T) {
	s := newSource(t, pgtest.Shared(t), `CREATE TABLE t (id int, v text)`)
	p := s.through(t)
	s.exec(t, `INSERT INTO t SELECT g, repeat('x', g) FROM generate_series(1, 1000) g`)

	t.Run("torn", func(t *testing.T) {
		p.Set(proxy.Down, proxy.Fault{Slice: 7})
		p.Set(proxy.Up, proxy.Fault{Slice: 3})
		r := s.open(t, 0)
		if got := len(lines(r.all(t, s))); got != 1001 {
			t.Errorf("%d rows and commits; want 1001", got)
		}
		r.close(t)
		p.Set(proxy.Up, proxy.Fault{})
		p.Set(proxy.Down, proxy.Fault{})
	})
	for _, distance := range []int{20, 100, 1000, 10000} {
		t.Run(fmt.Sprintf("one byte in %d damaged", distance), func(t *testing.T) {
			r := s.open(t, 0)
			p.Set(proxy.Down, proxy.Fault{Corrupt: distance})
			// A damaged length may make us wait for more than the server has.
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := r.untilItFails(ctx); failure.ClassOf(err) != failure.Transient {
				t.Errorf("next: %v; want a transient error", err)
			}
			p.Set(proxy.Down, proxy.Fault{})
			p.Cut()
		})
	}
}

// Failure mode 14: the server hears from us while nobody calls Next, and even
// while it cannot send because nobody reads.
func TestStreamRepliesWhileItsCallerIsBusy(t *testing.T) {
	s := newSource(t, pgtest.Shared(t), `CREATE TABLE t (id int, v text)`)
	s.exec(t, `INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 20000) g`)
	r := s.open(t, 0)
	r.until(t, func(m *Message) bool { return m.Kind == Insert })
	ctx := pgtest.Context(t) // bounds the replies
	for heard := map[string]bool{}; len(heard) < 10; {
		var at string
		must.OK(t, s.sql.QueryRow(ctx, `SELECT coalesce(reply_time::text, '') FROM pg_stat_replication WHERE pid = `+s.walsender()).Scan(&at))
		heard[at] = true
	}
	if got := len(lines(r.all(t, s))); got != 20000 {
		t.Errorf("%d rows and commits after the first row; want 20000", got)
	}
	r.close(t)
}

func TestNextEndsWithItsContext(t *testing.T) {
	s := newSource(t, pgtest.Shared(t), `CREATE TABLE t (id int)`)
	s.options.StatusInterval, s.options.LivenessTimeout = never, never // nothing else ends it
	s.exec(t, `INSERT INTO t VALUES (1)`)
	r := s.open(t, 0)
	end := commitOf(t, r.upToCommit(t)).End
	reason := errors.New("that is enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, reason)
	defer cancel()
	if err := r.untilItFails(ctx); !errors.Is(err, reason) {
		t.Errorf("next: %v; want the context's cause", err)
	}
	// An interrupted stream still confirms.
	r.Confirm(end)
	r.close(t)
	s.wantConfirmed(t, end)
}

func TestCloseEndsWithItsContext(t *testing.T) {
	s := newSource(t, pgtest.Shared(t))
	s.options.LivenessTimeout = never // nothing else ends it
	p := s.through(t)
	r := s.open(t, 0)
	p.Set(proxy.Down, proxy.Fault{Swallow: true})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r.closed = true
	if err := r.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("close: %v; want %v", err, context.DeadlineExceeded)
	}
}

// Failure mode 11: an error of the server up to PostgreSQL 17, a mere warning
// from 18 on.
func TestStreamRefusesToGoOnWithoutItsPublication(t *testing.T) {
	s := newSource(t, pgtest.Shared(t), `CREATE TABLE t (id int)`)
	s.options.Publication = "missing"
	s.exec(t, `INSERT INTO t VALUES (1)`)
	r, err := s.tryOpen(t, 0)
	if err == nil {
		err = r.failure(t)
	}
	if failure.ClassOf(err) != failure.Loss || failure.RemedyOf(err) == "" {
		t.Errorf("%v: class %v, remedy %q; want class Loss and a remedy", err, failure.ClassOf(err), failure.RemedyOf(err))
	}
}
