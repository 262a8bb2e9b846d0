package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/hook"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
)

// stream is a topic with the messages of a runner.
type stream struct {
	runner
	brokers []string
}

// newStream returns a topic of so many partitions with the messages.
func newStream(t testing.TB, r runner, partitions ...[]string) stream {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(int32(len(partitions)), "messages"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for n, ids := range partitions {
		for _, id := range ids {
			client.Produce(limited(t), &kgo.Record{
				Topic: "messages", Partition: int32(n), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}},
			}, nil)
		}
	}
	if err := client.Flush(limited(t)); err != nil {
		t.Fatal(err)
	}
	return stream{runner: r, brokers: cluster.ListenAddrs()}
}

// idOf returns the id of a record's message.
func idOf(r *kgo.Record) string { return string(r.Headers[0].Value) }

// consume runs a consumer of the stream until stop is called, or the test ends.
// Each message has an effect, after handle, which may be nil.
func (s stream) consume(t testing.TB, handle func(ctx context.Context, id string) error, change ...func(*consumer.Config)) (stop func()) {
	t.Helper()
	cfg := consumer.Config{
		Brokers: s.brokers, Group: "test", Topics: []string{"messages"},
		Options:      []kgo.Opt{kgo.FetchMaxWait(50 * time.Millisecond), kgo.HeartbeatInterval(50 * time.Millisecond)},
		Once:         consumer.Once{Runner: s.Processor},
		BackoffFirst: time.Millisecond, BackoffLongest: 4 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Handler: func(ctx context.Context, r *kgo.Record) error {
			if handle != nil {
				if err := handle(ctx, idOf(r)); err != nil {
					return err
				}
			}
			return second(effect(idOf(r))(ctx))
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Errorf("the consumer ends with %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	return stop
}

// through lets a middleware process the records.
func through(m func(next consumer.Process) consumer.Process) func(*consumer.Config) {
	return func(c *consumer.Config) {
		c.Middleware, c.MiddlewareKeepsRecords = append(c.Middleware, m), true
	}
}

// undaunted forgets lost connections at once: claims go on to share round trips.
func undaunted() func(*consumer.Config) {
	return through(func(next consumer.Process) consumer.Process {
		return func(ctx context.Context, r *kgo.Record) (idempotency.Result, error) {
			return next(hook.WithInterval(ctx, 0), r)
		}
	})
}

// awaitDone waits until the messages are completed, and asserts a single effect
// of each.
func (s stream) awaitDone(t testing.TB, ids ...string) {
	t.Helper()
	await.Until(t, fmt.Sprintf("%d messages are completed", len(ids)), func() bool {
		var n int
		err := s.pool.QueryRow(limited(t), `SELECT count(*) FROM idempotency_keys WHERE state = 'completed' AND id = ANY ($1)`, ids).Scan(&n)
		return err == nil && n == len(ids)
	})
	for table, column := range map[string]string{"effects": "id", "outbox": "aggregateid"} {
		if n := query[int](t, s.pool, `SELECT count(*) FROM `+table+` WHERE `+column+` = ANY ($1)`, ids); n != len(ids) {
			t.Errorf("%d %s of %d messages", n, table, len(ids))
		}
		if n := query[int](t, s.pool, `SELECT count(DISTINCT `+column+`) FROM `+table+` WHERE `+column+` = ANY ($1)`, ids); n != len(ids) {
			t.Errorf("%d messages of %d have %s", n, len(ids), table)
		}
	}
}

// wantAttempts asserts how the attempts at completed messages are counted.
func (s stream) wantAttempts(t testing.TB, attempts, vanished int, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if r := s.wantState(t, id, storage.Completed, attempts); r.Vanished != vanished {
			t.Errorf("%s has vanished %d times, want %d", id, r.Vanished, vanished)
		}
	}
}

func numbered(prefix string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s%d", prefix, i))
	}
	return ids
}

// sharedTrip tells whether everything sent in a single round trip completes a
// message, and claims the next.
func sharedTrip(sql string) bool {
	return strings.Contains(sql, committing) && strings.Contains(sql, "INSERT INTO \"idempotency_keys\"")
}

// The claim of a message shares the round trip completing the message before in
// the partition. The transaction is as any other, whatever the handler before has
// set. After a number of messages the connection is for others.
func TestClaimAhead(t *testing.T) {
	mode := func(m pgx.QueryExecMode) func(*pgxpool.Config) {
		return func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = m }
	}
	for name, c := range map[string]struct {
		table  postgres.Options
		pool   func(*pgxpool.Config)
		shared bool
	}{
		"prepared statements":       {shared: true, pool: mode(pgx.QueryExecModeCacheStatement)},
		"partitioned":               {shared: true, table: postgres.Options{Partitioned: true}},
		"read committed":            {shared: true, table: postgres.Options{Isolation: pgx.ReadCommitted}},
		"simple protocol":           {shared: true, pool: mode(pgx.QueryExecModeSimpleProtocol)},
		"unnamed statements":        {shared: true, pool: mode(pgx.QueryExecModeExec)},
		"cached descriptions":       {shared: true, pool: mode(pgx.QueryExecModeCacheDescribe)},
		"serializable":              {table: postgres.Options{Isolation: pgx.Serializable}},
		"repeatable read":           {table: postgres.Options{Isolation: pgx.RepeatableRead}},
		"a stricter default":        {pool: connection("repeatable read", pgx.QueryExecModeCacheStatement)[0]},
		"a pool of one connection":  {pool: func(c *pgxpool.Config) { c.MaxConns = 1 }},
		"a pool that does the rest": {pool: func(c *pgxpool.Config) { c.AfterRelease = func(*pgx.Conn) bool { return true } }},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			shared, row, longest := 0, 0, 0
			tr := &tracer{before: func(*pgx.Conn, string) {}, after: func(_ *pgx.Conn, sql string) {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case sharedTrip(sql):
					shared++
					row++
					longest = max(longest, row)
				case strings.Contains(sql, committing):
					row = 0
				}
			}}
			change := []func(*pgxpool.Config){traced(tr)}
			if c.pool != nil {
				change = append(change, c.pool)
			}
			r := newRunnerWith(t, c.table, idempotency.Options{}, change...)
			level := strings.ToLower(string(c.table.Isolation))
			if level == "" {
				level = query[string](t, connect(t, r.url, change...), `SHOW default_transaction_isolation`)
			}
			ids := numbered("message-", 80)
			s := newStream(t, r, ids)
			var order []string
			stop := s.consume(t, func(ctx context.Context, id string) error {
				order = append(order, id)
				var idle, isolation, durable string
				var locks int
				err := postgres.Tx(ctx).QueryRow(ctx, `SELECT current_setting('idle_in_transaction_session_timeout'),
					current_setting('transaction_isolation'), current_setting('synchronous_commit'),
					(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())`).Scan(&idle, &isolation, &durable, &locks)
				if err != nil || idle != "1min" || isolation != level || durable != "on" || locks != 1 {
					t.Errorf("%s: idle for %s, %s, synchronous_commit %s, %d locks, %v", id, idle, isolation, durable, locks, err)
				}
				_, err = postgres.Tx(ctx).Exec(ctx, `SET LOCAL synchronous_commit = off`)
				if err == nil {
					_, err = postgres.Tx(ctx).Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = '5s'`)
				}
				return err
			})
			s.awaitDone(t, ids...)
			stop()
			s.wantAttempts(t, 1, 0, ids...)
			if !slices.Equal(order, ids) {
				t.Errorf("handled in the order %q", order)
			}
			if c.shared != (shared > 60) || !c.shared && shared > 0 || longest > 31 {
				t.Errorf("%d of %d claims share a round trip, %d in a row", shared, len(ids), longest)
			}
		})
	}
}

// A worker going from partition to partition claims ahead as well, and each
// partition keeps the order.
func TestClaimAheadOfAnotherPartition(t *testing.T) {
	var shared atomic.Int64
	r := newRunner(t, idempotency.Options{}, traced(&tracer{before: func(*pgx.Conn, string) {}, after: func(_ *pgx.Conn, sql string) {
		if sharedTrip(sql) {
			shared.Add(1)
		}
	}}))
	var all []string
	var partitions [][]string
	for n := range 4 {
		ids := numbered(fmt.Sprint(n, "-"), 20)
		partitions, all = append(partitions, ids), append(all, ids...)
	}
	s := newStream(t, r, partitions...)
	order := map[string][]string{}
	stop := s.consume(t, func(_ context.Context, id string) error {
		order[id[:1]] = append(order[id[:1]], id)
		return nil
	}, func(c *consumer.Config) { c.Concurrency = 1 })
	s.awaitDone(t, all...)
	stop()
	s.wantAttempts(t, 1, 0, all...)
	for n, ids := range partitions {
		if got := order[fmt.Sprint(n)]; !slices.Equal(got, ids) {
			t.Errorf("partition %d is handled in the order %q", n, got)
		}
	}
	if n := shared.Load(); n < int64(len(all))*3/4 {
		t.Errorf("%d of %d claims share a round trip", n, len(all))
	}
}

// A wait for a connection between two messages succeeds, though all handlers'
// connections are kept for the next.
func TestClaimsAheadLeaveAConnection(t *testing.T) {
	r := newRunner(t, idempotency.Options{})
	pool := connect(t, r.url, func(c *pgxpool.Config) { c.MaxConns = 2 })
	first, others := numbered("a", 100), numbered("b", 100)
	s := newStream(t, newRunnerOn(t, r.pool, pool, postgres.Options{}, idempotency.Options{}), first, others)
	s.consume(t, nil, through(func(next consumer.Process) consumer.Process {
		return func(ctx context.Context, record *kgo.Record) (idempotency.Result, error) {
			if err := pool.Ping(ctx); err != nil {
				t.Error(err)
			}
			return next(ctx, record)
		}
	}))
	s.awaitDone(t, append(first, others...)...)
}

// Whatever becomes of a claim, the message before is completed, once. A commit
// failed by the claim is not held against the message: the next try is without
// the claim.
func TestClaimAheadIsRefused(t *testing.T) {
	t.Run("a duplicate", func(t *testing.T) {
		s := newStream(t, newRunner(t, idempotency.Options{}), []string{"a", "b", "c", "b", "c", "d"})
		s.want(t, message("b"), effect("b"), idempotency.Handled)
		s.consume(t, nil)
		s.awaitDone(t, "a", "b", "c", "d")
		s.wantAttempts(t, 1, 0, "a", "b", "c", "d")
	})
	for name, instead := range map[string]string{
		"an error":              `RAISE 'not with a'`,
		"a statement that ends": `RAISE 'not with a' USING ERRCODE = 'query_canceled'`,
		"no answer":             `PERFORM pg_sleep(3600)`,
	} {
		t.Run(name, func(t *testing.T) {
			o := idempotency.Options{MaxAttempts: 1, Timeout: 3 * time.Second, DeadLetter: func(_ context.Context, d idempotency.DeadLetter) error {
				t.Errorf("%s is given up: %v", d.Message.Key.ID, d.Reason)
				return nil
			}}
			s := newStream(t, newRunner(t, o), []string{"a", "b", "c"})
			exec(t, s.pool, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
				$$ BEGIN IF NEW.id = 'b' AND EXISTS (SELECT FROM effects WHERE id = 'a' AND xmin = pg_current_xact_id()::xid)
					THEN `+instead+`; END IF; RETURN NEW; END $$;
				CREATE TRIGGER refuse BEFORE INSERT ON idempotency_keys FOR EACH ROW EXECUTE FUNCTION refuse()`)
			s.consume(t, nil)
			s.awaitDone(t, "a", "b", "c")
			s.wantAttempts(t, 1, 0, "b", "c")
			if r := s.wantState(t, "a", storage.Completed, 2); r.Excused != 1 {
				t.Errorf("a is excused %d times, want once", r.Excused)
			}
		})
	}
	t.Run("no right to", func(t *testing.T) {
		s := newStream(t, newRunner(t, idempotency.Options{}), numbered("message-", 20))
		role := query[string](t, s.pool, `SELECT 'app_' || current_database()`)
		exec(t, s.pool, fmt.Sprintf(`CREATE ROLE %[1]q; GRANT SELECT, UPDATE ON idempotency_keys TO %[1]q; GRANT ALL ON effects, outbox TO %[1]q`, role))
		defer exec(t, s.pool, fmt.Sprintf(`DROP OWNED BY %[1]q; DROP ROLE %[1]q`, role))
		runs := 0
		stop := s.consume(t, func(ctx context.Context, _ string) error {
			runs++
			_, err := postgres.Tx(ctx).Exec(ctx, fmt.Sprintf(`SET LOCAL ROLE %q`, role))
			return err
		})
		s.awaitDone(t, numbered("message-", 20)...)
		stop()
		if runs > 25 { // a failing claim must not fail each message
			t.Errorf("20 messages took %d runs", runs)
		}
	})
	for name, block := range map[string]func(t *testing.T, s stream, tx pgx.Tx){
		"in the way": func(t *testing.T, _ stream, tx pgx.Tx) {
			claim(t, newStore(t, sameTransaction{tx}, postgres.Options{}), key("b"), request())
		},
		"being deleted": func(t *testing.T, s stream, tx pgx.Tx) {
			store := newStore(t, s.pool, postgres.Options{})
			if err := store.Fail(limited(t), claim(t, store, key("b"), request()).Lease, storage.Failure{Unrun: true, Retention: time.Hour}); err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(limited(t), `DELETE FROM idempotency_keys WHERE id = 'b'`); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStream(t, newRunner(t, idempotency.Options{Timeout: long}), []string{"a", "b", "c"})
			tx := begin(t, s.pool)
			block(t, s, tx)
			processed := make(chan idempotency.Disposition, 100)
			s.consume(t, nil, func(c *consumer.Config) {
				c.Observer.Processed = func(_ *kgo.Record, result idempotency.Result, _ error, _ time.Duration) {
					processed <- result.Disposition
				}
			})
			select {
			case d := <-processed: // though b's row is not free
				if d != idempotency.Handled {
					t.Errorf("a is %s", d)
				}
			case <-limited(t).Done():
				t.Error("the answer about a waits for b")
			}
			if err := tx.Rollback(limited(t)); err != nil {
				t.Fatal(err)
			}
			s.awaitDone(t, "a", "b", "c")
			s.wantAttempts(t, 1, 0, "a", "b", "c")
		})
	}
	t.Run("a failed handler", func(t *testing.T) {
		s := newStream(t, newRunner(t, idempotency.Options{}), []string{"a", "b", "c"})
		failed := map[string]bool{}
		s.consume(t, func(_ context.Context, id string) error {
			if !failed[id] {
				failed[id] = true
				if id == "b" {
					panic("no such order")
				}
				return errors.New("not now")
			}
			return nil
		})
		s.awaitDone(t, "a", "b", "c")
		s.wantAttempts(t, 2, 0, "a", "b", "c")
	})
}

// An unused claim is given back, as if never asked for: when a middleware keeps
// the record, or the result of the record before.
func TestClaimAheadIsGivenBack(t *testing.T) {
	later := errors.New("later")
	for name, keep := range map[string]func(id string, process func() (idempotency.Result, error)) (idempotency.Result, error){
		"the record": func(id string, process func() (idempotency.Result, error)) (idempotency.Result, error) {
			if id == "b" {
				return idempotency.Result{Disposition: idempotency.Retry}, later
			}
			return process()
		},
		"the result of the one before": func(id string, process func() (idempotency.Result, error)) (idempotency.Result, error) {
			if result, err := process(); id != "a" {
				return result, err
			}
			return idempotency.Result{Disposition: idempotency.Retry}, later
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStream(t, newRunner(t, idempotency.Options{}), []string{"a", "b", "c"})
			var kept, given bool
			s.consume(t, nil, through(func(next consumer.Process) consumer.Process {
				return func(ctx context.Context, r *kgo.Record) (idempotency.Result, error) {
					process := func() (idempotency.Result, error) { return next(ctx, r) }
					if kept {
						if !given {
							given = true
							s.wantState(t, "b", storage.Retryable, 0)
						}
						return process()
					}
					result, err := keep(idOf(r), process)
					if kept = errors.Is(err, later); kept {
						s.wantState(t, "b", storage.Processing, 1)
					}
					return result, err
				}
			}))
			s.awaitDone(t, "a", "b", "c")
			s.wantAttempts(t, 1, 0, "a", "b", "c")
			if !given {
				t.Error("nothing was kept")
			}
		})
	}
}

// A claim is given back after the server has ended the idle transaction: a slow
// middleware costs no attempt.
func TestClaimAheadThatWaitsIsGivenBack(t *testing.T) {
	r := newRunnerWith(t, postgres.Options{IdleTimeout: 1200 * time.Millisecond}, idempotency.Options{Lease: long})
	s := newStream(t, r, []string{"a", "b", "c"})
	waited := false
	s.consume(t, nil, through(func(next consumer.Process) consumer.Process {
		return func(ctx context.Context, record *kgo.Record) (idempotency.Result, error) {
			if idOf(record) == "b" && !waited {
				waited = true
				s.wantState(t, "b", storage.Processing, 1)
				await.Until(t, "the server ends b's transaction", func() bool {
					return query[int](t, r.pool, `SELECT count(*) FROM pg_stat_activity
						WHERE datname = current_database() AND state LIKE 'idle in transaction%'`) == 0
				})
			}
			return next(ctx, record)
		}
	}))
	s.awaitDone(t, "a", "b", "c")
	s.wantAttempts(t, 1, 0, "a", "b", "c")
	if !waited {
		t.Error("b was not waited for")
	}
}

// byTurns has each message run by the next Processor of some sharing a store.
type byTurns struct {
	processors []*idempotency.Processor
	runs       *atomic.Int64
}

func (b byTurns) Run(ctx context.Context, m idempotency.Message, h idempotency.Handler) (idempotency.Result, error) {
	return b.processors[int(b.runs.Add(1))%len(b.processors)].Run(ctx, m, h)
}

// A Processor's early claim is not in the way of another Processor with the
// message.
func TestClaimAheadOfAnotherProcessor(t *testing.T) {
	r := newRunner(t, idempotency.Options{})
	ids := numbered("message-", 20)
	s := newStream(t, r, ids)
	processors := []*idempotency.Processor{r.Processor, newRunnerOn(t, r.pool, connect(t, r.url), postgres.Options{}, idempotency.Options{}).Processor}
	s.consume(t, nil, func(c *consumer.Config) {
		c.Once.Runner = byTurns{processors, new(atomic.Int64)}
		c.Observer.Processed = func(record *kgo.Record, result idempotency.Result, _ error, _ time.Duration) {
			if !result.Done() {
				t.Errorf("%s is %s", idOf(record), result.Disposition)
			}
		}
	})
	s.awaitDone(t, ids...)
	s.wantAttempts(t, 1, 0, ids...)
}

// The connection is cut, or killed, in the round trip that completes a message
// and claims the next. Each has a single effect, and the next a single attempt.
func TestE2EFaultAtAClaimAhead(t *testing.T) {
	for fault := range faults {
		t.Run(fault, func(t *testing.T) {
			direct := newDatabase(t)
			admin := connect(t, direct)
			create(t, admin, postgres.Options{})
			exec(t, admin, business)
			p, proxied := behind(t, direct)
			var armed, happened atomic.Bool
			kill := func(conn *pgx.Conn) func() {
				return func() { exec(t, admin, `SELECT pg_terminate_backend($1, 10000)`, conn.PgConn().PID()) }
			}
			pool := connect(t, proxied, traced(&tracer{
				before: func(conn *pgx.Conn, sql string) {
					if armed.Load() && sharedTrip(sql) && faults[fault].before != nil {
						faults[fault].before(p, kill(conn))
					}
				},
				after: func(conn *pgx.Conn, sql string) {
					if !sharedTrip(sql) || !armed.CompareAndSwap(true, false) {
						return
					}
					if after := faults[fault].after; after != nil {
						after(p, kill(conn))
					}
					happened.Store(true)
					p.Set(proxy.Up, proxy.Fault{})
					p.Set(proxy.Down, proxy.Fault{})
				},
			}))
			s := newStream(t, newRunnerOn(t, admin, pool, postgres.Options{}, idempotency.Options{}), []string{"before", "a", "b", "c"})
			runs := map[string]int{}
			s.consume(t, func(_ context.Context, id string) error {
				if runs[id]++; id == "a" && runs[id] == 1 {
					armed.Store(true)
				}
				return nil
			})
			s.awaitDone(t, "before", "a", "b", "c")
			if !happened.Load() {
				t.Fatal("the fault did not happen")
			}
			again := fault == "request lost" || fault == "killed before"
			if again != (runs["a"] == 2) {
				t.Errorf("a was run %d times", runs["a"])
			}
			// The handler of b finds the connection gone, and fails.
			attempts := map[bool]int{false: 1, true: 2}[fault == "killed after"]
			s.wantAttempts(t, attempts, 0, "b")
			s.wantAttempts(t, 1, 0, "before", "c")
		})
	}
}

// Hundreds of messages in the partitions of a group. Members come and go, and
// connections are cut or killed at random statements: every effect is there once.
func TestE2ERandomFaultsInAGroup(t *testing.T) {
	direct := newDatabase(t)
	admin := connect(t, direct)
	create(t, admin, postgres.Options{})
	exec(t, admin, business)
	p, proxied := behind(t, direct)
	var happened, atShared atomic.Int64
	strike := striking(t, p, admin, func(sql string) bool {
		shared := sharedTrip(sql)
		if rand.IntN(100) > 0 && (!shared || rand.IntN(8) > 0) {
			return false
		}
		happened.Add(1)
		if shared {
			atShared.Add(1)
		}
		return true
	})
	const partitions, each = 4, 150
	var all []string
	var perPartition [][]string
	for n := range partitions {
		ids := numbered(fmt.Sprintf("%d-", n), each)
		perPartition, all = append(perPartition, ids), append(all, ids...)
	}
	member := func() stream {
		pool := connect(t, proxied, traced(&tracer{before: strike, after: strike}))
		return stream{runner: newRunnerOn(t, admin, pool, postgres.Options{}, idempotency.Options{Lease: 20 * time.Millisecond})}
	}
	s := newStream(t, member().runner, perPartition...)
	fewWorkers := func(c *consumer.Config) { c.Concurrency = 2 } // going from partition to partition
	s.consume(t, nil, undaunted(), fewWorkers)
	for n := 1; n <= 4; n++ {
		guest := member()
		guest.brokers = s.brokers
		stop := guest.consume(t, nil, undaunted(), fewWorkers)
		await.Until(t, "messages are done", func() bool {
			var done int
			err := admin.QueryRow(limited(t), `SELECT count(*) FROM effects`).Scan(&done)
			return err == nil && done > len(all)*n/6
		})
		stop()
	}
	s.awaitDone(t, all...)
	if atShared.Load() < 20 {
		t.Errorf("%d faults only, %d of them at claims ahead", happened.Load(), atShared.Load())
	}
	t.Logf("%d faults, %d of them at claims ahead", happened.Load(), atShared.Load())
}

// A vanished message runs alone also with claims ahead: nothing else is claimed
// meanwhile.
func TestClaimsAheadLetOneBeAlone(t *testing.T) {
	dying := newRunner(t, idempotency.Options{Lease: 10 * time.Millisecond})
	r := newRunnerOn(t, dying.pool, connect(t, dying.url), postgres.Options{}, idempotency.Options{Lease: long})
	die(func() {
		_, _ = dying.Run(t.Context(), message("killer"), func(context.Context) ([]byte, error) { runtime.Goexit(); return nil, nil })
	})
	ids := numbered("message-", 200)
	s := newStream(t, r, ids)
	var handled atomic.Int64
	s.consume(t, func(context.Context, string) error { handled.Add(1); return nil })
	await.Until(t, "messages are handled", func() bool { return handled.Load() > 5 })
	r.untilDone(t, message("killer"), func(ctx context.Context) ([]byte, error) {
		if n := query[int](t, r.pool, `SELECT count(*) FROM idempotency_keys WHERE state = 'processing'`); n != 1 {
			t.Errorf("%d messages are claimed", n)
		}
		return effect("killer")(ctx)
	})
	s.awaitDone(t, ids...)
	s.wantAttempts(t, 1, 0, ids...)
}
