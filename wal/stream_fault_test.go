package wal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/proxy"
	"github.com/cdc-outbox/cdc-outbox/internal/sqlstate"
)

// The tests of what goes wrong between the server and us.

// through puts a fault proxy before the source's replication connections.
func (s *source) through(t *testing.T) *proxy.Proxy {
	t.Helper()
	p, behind := pgtest.Behind(t, s.url)
	s.url = behind + "?sslmode=disable"
	return p
}

// walsender is a subquery for the process that streams to us.
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
	if err := <-failed; sqlstate.Of(err) != pgerrcode.AdminShutdown || failure.ClassOf(err) != failure.Transient {
		t.Errorf("next: %v; want a transient error of state %s", err, pgerrcode.AdminShutdown)
	}
	if _, err := r.Next(pgtest.Context(t)); err == nil {
		t.Error("Next succeeded after it had failed")
	}
	r = s.open(t, end)
	wantLines(t, r.all(t, s), []string{"insert public.t id=2", "commit"})
	r.close(t)
}

// Failure modes 1 and 2: a restart loses nothing that was not confirmed.
func TestStreamAcrossServerRestarts(t *testing.T) {
	server := pgtest.Start(t)
	s := newSource(t, server, `CREATE TABLE t (id int)`)
	for i, mode := range []pgtest.Mode{pgtest.Immediate, pgtest.Fast} {
		s.exec(t, fmt.Sprintf(`INSERT INTO t VALUES (%d)`, 10*i), fmt.Sprintf(`INSERT INTO t VALUES (%d)`, 10*i+1))
		r := s.open(t, 0)
		first := commitOf(t, r.upToCommit(t)).End
		r.Confirm(first)
		if mode == pgtest.Fast { // waits for readers that do not follow
			r.close(t)
		}
		server.Restart(t, mode)
		if mode == pgtest.Immediate {
			if err := r.failure(t); failure.ClassOf(err) != failure.Transient {
				t.Errorf("next: %v; want a transient error", err)
			}
		}
		s.sql = connect(t, s.url)
		r = s.open(t, first)
		second := r.all(t, s)
		wantLines(t, second, []string{fmt.Sprintf("insert public.t id=%d", 10*i+1), "commit"})
		r.Confirm(commitOf(t, second).End)
		r.close(t)
	}
}

// Failure mode 15, and the server's half of it.
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

// A server that has nothing to send answers each request for a reply; see
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
			var err error
			for err == nil {
				_, err = r.Next(ctx)
			}
			if failure.ClassOf(err) != failure.Transient {
				t.Errorf("next: %v; want a transient error", err)
			}
			p.Set(proxy.Down, proxy.Fault{})
			p.Cut()
		})
	}
}

// Failure mode 14: the server hears from us while nobody calls Next, and even
// while it cannot send for want of a reader.
func TestStreamRepliesWhileItsCallerIsBusy(t *testing.T) {
	s := newSource(t, pgtest.Shared(t), `CREATE TABLE t (id int, v text)`)
	s.exec(t, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET wal_sender_timeout = ''10s''', current_database()); END $$`,
		`INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 20000) g`)
	r := s.open(t, 0)
	r.until(t, func(m *Message) bool { return m.Kind == Insert })
	s.await(t, `SELECT coalesce(reply_time > backend_start + interval '12 s', false) FROM pg_stat_replication WHERE pid = `+s.walsender())
	if got := len(lines(r.all(t, s))); got != 20000 {
		t.Errorf("%d rows and commits after the first row; want 20000", got)
	}
	r.close(t)
}

func TestNextEndsWithItsContext(t *testing.T) {
	s := newSource(t, pgtest.Shared(t), `CREATE TABLE t (id int)`)
	s.options.StatusInterval = time.Minute // nothing arrives meanwhile
	s.exec(t, `INSERT INTO t VALUES (1)`)
	r := s.open(t, 0)
	end := commitOf(t, r.upToCommit(t)).End
	reason := errors.New("that is enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, reason)
	defer cancel()
	started := time.Now()
	var err error
	for err == nil {
		_, err = r.Next(ctx)
	}
	if took := time.Since(started); !errors.Is(err, reason) || took > s.options.LivenessTimeout/2 {
		t.Errorf("next: %v after %s; want the context's cause at once", err, took)
	}
	// An interrupted stream still confirms.
	r.Confirm(end)
	r.close(t)
	if got := s.confirmedFlush(t); got != end {
		t.Errorf("after Close the server has %s confirmed; want %s", got, end)
	}
}

func TestCloseEndsWithItsContext(t *testing.T) {
	s := newSource(t, pgtest.Shared(t))
	p := s.through(t)
	r := s.open(t, 0)
	p.Set(proxy.Down, proxy.Fault{Swallow: true})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r.closed = true
	started := time.Now()
	err := r.Close(ctx)
	if took := time.Since(started); !errors.Is(err, context.DeadlineExceeded) || took > s.options.LivenessTimeout/2 {
		t.Errorf("close: %v after %s; want %v at once", err, took, context.DeadlineExceeded)
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
