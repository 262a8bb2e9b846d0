package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/hook"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
)

// tracer calls before and after each round trip of a pool, with everything
// sent: a statement, or a batch's statements.
type tracer struct {
	before func(conn *pgx.Conn, sql string)
	after  func(conn *pgx.Conn, sql string)
}

type sqlKey struct{}

func (tr *tracer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	tr.before(conn, d.SQL)
	return context.WithValue(ctx, sqlKey{}, d.SQL)
}

func (tr *tracer) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryEndData) {
	if sql, ok := ctx.Value(sqlKey{}).(string); ok {
		tr.after(conn, sql)
	}
}

func (tr *tracer) TraceBatchStart(ctx context.Context, conn *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	var all []string
	for _, q := range d.Batch.QueuedQueries {
		all = append(all, q.SQL)
	}
	return tr.TraceQueryStart(ctx, conn, pgx.TraceQueryStartData{SQL: strings.Join(all, "; ")})
}

func (tr *tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (tr *tracer) TraceBatchEnd(ctx context.Context, conn *pgx.Conn, _ pgx.TraceBatchEndData) {
	tr.TraceQueryEnd(ctx, conn, pgx.TraceQueryEndData{})
}

func traced(tr *tracer) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.Tracer = tr }
}

// behind returns a proxy to a server, and the URL through it.
func behind(t testing.TB, rawURL string) (*proxy.Proxy, string) {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	p, err := proxy.Listen("127.0.0.1:0", net.JoinHostPort(u.Hostname(), u.Port()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	u.Host = p.Addr()
	return p, u.String()
}

// steps are the round trips of a Run, in order, each by a part of the SQL.
var steps = map[string]string{
	"claim and begin":     "INSERT INTO \"idempotency_keys\"",
	"business":            "INSERT INTO effects",
	"event":               "outbox",
	"complete and commit": committing,
}

const committing = "state = 'completed'"

// faults are the faults of a step, given the proxy and a function terminating a
// connection at the server. Each is armed before the statement is sent.
var faults = map[string]struct {
	before, after func(p *proxy.Proxy, kill func())
}{
	"request lost":  {before: func(p *proxy.Proxy, _ func()) { p.Set(proxy.Up, proxy.Fault{Cut: true}) }},
	"answer lost":   {before: func(p *proxy.Proxy, _ func()) { p.Set(proxy.Down, proxy.Fault{Cut: true}) }},
	"killed before": {before: func(_ *proxy.Proxy, kill func()) { kill() }},
	"killed after":  {after: func(_ *proxy.Proxy, kill func()) { kill() }},
}

// The connection is cut, or killed, at each step. The message is then given to
// Run until done, and has a single effect.
func TestE2EFaultAtEachStep(t *testing.T) {
	var p *proxy.Proxy
	var killer *pgxpool.Pool
	var armed struct {
		step  string // empty when done
		fault string
	}
	kill := func(conn *pgx.Conn) func() {
		return func() { exec(t, killer, `SELECT pg_terminate_backend($1, 10000)`, conn.PgConn().PID()) }
	}
	hit := func(sql string) bool { return armed.step != "" && strings.Contains(sql, steps[armed.step]) }
	tr := &tracer{
		before: func(conn *pgx.Conn, sql string) {
			if hit(sql) && faults[armed.fault].before != nil {
				faults[armed.fault].before(p, kill(conn))
			}
		},
		after: func(conn *pgx.Conn, sql string) {
			if !hit(sql) {
				return
			}
			if after := faults[armed.fault].after; after != nil {
				after(p, kill(conn))
			}
			p.Set(proxy.Up, proxy.Fault{})
			p.Set(proxy.Down, proxy.Fault{})
			armed.step = ""
		},
	}
	through := newDatabase(t)
	killer = connect(t, through)
	create(t, killer, postgres.Options{})
	exec(t, killer, business)
	p, through = behind(t, through)
	pool := connect(t, through, traced(tr))
	r := newRunnerOn(t, killer, pool, postgres.Options{}, idempotency.Options{Lease: 20 * time.Millisecond})

	for step := range steps {
		for fault := range faults {
			t.Run(step+" "+fault, func(t *testing.T) {
				if err := pool.Ping(limited(t)); err != nil {
					t.Fatal(err)
				}
				id := step + " " + fault
				r.untilDone(t, message("before "+id), effect("before "+id)) // new, and so the next may be
				armed.step, armed.fault = step, fault
				result, err := r.Run(hook.WithInterval(limited(t), 0), message(id), effect(id))
				if armed.step != "" {
					t.Fatal("the fault did not happen")
				}
				// A claim is asked for twice, and a commit asked about.
				handled := step == "claim and begin" && fault != "killed after" ||
					step == "complete and commit" && (fault == "answer lost" || fault == "killed after")
				// The second claim may find the first: the server still has the connection.
				inItsWay := step == "claim and begin" && fault == "answer lost" && result.Disposition == idempotency.Elsewhere
				if handled != (result.Disposition == idempotency.Handled) && !inItsWay {
					t.Errorf("first run: %s, %v", result.Disposition, err)
				}
				r.untilDone(t, message(id), effect(id))
				r.wantEffects(t, id, 1)
			})
		}
	}
}

// Hundreds of messages, each delivered to two of four consumers. Connections
// are cut or killed at random statements: every effect is there once.
func TestE2ERandomFaults(t *testing.T) {
	direct := newDatabase(t)
	admin := connect(t, direct)
	create(t, admin, postgres.Options{})
	exec(t, admin, business)
	p, through := behind(t, direct)

	var happened, atCommit atomic.Int64
	strike := striking(t, p, admin, func(sql string) bool {
		commits := strings.Contains(sql, committing)
		if rand.IntN(40) > 0 && (!commits || rand.IntN(4) > 0) {
			return false
		}
		happened.Add(1)
		if commits {
			atCommit.Add(1)
		}
		return true
	})
	pool := connect(t, through, traced(&tracer{before: strike, after: strike}))
	r := newRunnerOn(t, admin, pool, postgres.Options{}, idempotency.Options{Lease: 20 * time.Millisecond})

	const messages, consumers = 300, 4
	r.deliver(t, messages, consumers)
	r.wantEachOnce(t, messages)
	if happened.Load() < messages/2 || atCommit.Load() < 20 {
		t.Errorf("%d faults only, %d of them at commits", happened.Load(), atCommit.Load())
	}
	t.Logf("%d faults, %d of them at commits", happened.Load(), atCommit.Load())
}

// striking returns a function that cuts all connections, or has the server end
// the present connection, at the chosen statements.
func striking(t *testing.T, p *proxy.Proxy, admin *pgxpool.Pool, choose func(sql string) bool) func(*pgx.Conn, string) {
	return func(conn *pgx.Conn, sql string) {
		switch {
		case conn.IsClosed() || !choose(sql):
		case rand.IntN(6) == 0:
			p.Cut()
		default:
			if _, err := admin.Exec(limited(t), `SELECT pg_terminate_backend($1)`, conn.PgConn().PID()); err != nil {
				t.Error(err)
			}
		}
	}
}

// deliver gives each message to two of the consumers until done there.
func (r runner) deliver(t *testing.T, messages, consumers int) {
	t.Helper()
	var running sync.WaitGroup
	for n := range consumers {
		running.Go(func() {
			for i := n / 2; i < messages; i += consumers / 2 {
				id := fmt.Sprint("message-", i)
				r.untilDone(t, message(id), effect(id))
			}
		})
	}
	running.Wait()
}

// wantEachOnce asserts a single effect of each delivered message.
func (r runner) wantEachOnce(t *testing.T, messages int) {
	t.Helper()
	if n := query[int](t, r.pool, `SELECT count(*) FROM effects`); n != messages {
		t.Errorf("%d effects of %d messages", n, messages)
	}
	if n := query[int](t, r.pool, `SELECT count(*) FROM (SELECT id FROM effects GROUP BY id HAVING count(*) <> 1
		UNION ALL SELECT aggregateid FROM outbox GROUP BY 1 HAVING count(*) <> 1) AS wrong`); n != 0 {
		t.Errorf("%d messages had their effect, or their event, more than once", n)
	}
	if n := query[int](t, r.pool, `SELECT count(*) FROM idempotency_keys WHERE state = 'completed'`); n != messages {
		t.Errorf("%d keys of %d are completed", n, messages)
	}
}

// The server crashes and comes back, again and again, under consumers at work.
func TestE2EServerCrashes(t *testing.T) {
	server := pgtest.Start(t)
	direct := server.URL("postgres")
	admin := connect(t, direct)
	create(t, admin, postgres.Options{})
	exec(t, admin, business)
	pool := connect(t, direct)
	r := newRunnerOn(t, admin, pool, postgres.Options{}, idempotency.Options{Lease: 20 * time.Millisecond})

	const messages, crashes = 600, 4
	var consuming sync.WaitGroup
	consuming.Go(func() { r.deliver(t, messages, 4) })
	for n := 1; n <= crashes; n++ {
		await.Until(t, "messages are done", func() bool {
			var done int
			err := admin.QueryRow(limited(t), `SELECT count(*) FROM effects`).Scan(&done)
			return err == nil && done > messages*n/(crashes+1)
		})
		server.Restart(t, pgtest.Immediate)
	}
	consuming.Wait()
	admin.Reset()
	r.wantEachOnce(t, messages)
}

// After vanishing in the middle of a transaction, a client keeps the key from
// others until the server gives the client up, and no longer.
func TestE2EVanishedClient(t *testing.T) {
	direct := newDatabase(t)
	admin := connect(t, direct)
	create(t, admin, postgres.Options{})
	exec(t, admin, business)
	idle, o := postgres.Options{IdleTimeout: 3 * time.Second}, idempotency.Options{Lease: 10 * time.Millisecond}
	alive := newRunnerOn(t, admin, connect(t, direct), idle, o)

	p, through := behind(t, direct)
	t.Cleanup(p.Cut)
	vanishing := newRunnerOn(t, admin, connect(t, through), idle, o)
	// Until told to go on, the server waits for the lock in the middle of a
	// statement, and so does not count the transaction as idle.
	busy := begin(t, admin)
	if _, err := busy.Exec(limited(t), `SELECT pg_advisory_xact_lock(1)`); err != nil {
		t.Fatal(err)
	}
	elsewhere := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		ctx, cancel := context.WithCancel(limited(t))
		result, err := vanishing.Run(ctx, message("a"), func(ctx context.Context) ([]byte, error) {
			if _, err := effect("a")(ctx); err != nil {
				return nil, err
			}
			_, _ = postgres.Tx(ctx).Exec(ctx, `SELECT pg_advisory_xact_lock(1)`)
			<-elsewhere
			cancel()
			return nil, ctx.Err()
		})
		if result.Done() {
			t.Errorf("the vanished client: %s, %v", result.Disposition, err)
		}
	})
	await.Until(t, "the handler waits", func() bool {
		return query[int](t, admin, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 1
	})
	p.Set(proxy.Up, proxy.Fault{Swallow: true})
	if result, err := alive.Run(limited(t), message("a"), never(t)); result.Disposition != idempotency.Elsewhere {
		t.Errorf("while the server has it: %s, %v", result.Disposition, err)
	}
	if err := busy.Rollback(limited(t)); err != nil {
		t.Fatal(err)
	}
	alive.untilDone(t, message("a"), effect("a"))
	alive.wantEffects(t, "a", 1)
	close(elsewhere)
	p.Cut()
	p.Refuse(true)
	running.Wait()
}
