package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redistest"
)

// The tests of this file are the rows of the table in the package's
// documentation.

// forgotten asserts the consequences of the loss of a held lease's record and of
// a completed key.
func forgotten(t *testing.T, s *redis.Store, held, completed storage.Lease) {
	t.Helper()
	for name, before := range map[string]storage.Lease{"the held key": held, "the completed key": completed} {
		again := claim(t, s, before.Key, request()) // a duplicate is not noticed
		if again.Fence <= before.Fence {
			t.Errorf("%s: fence %d after %d: it must grow beyond what was forgotten", name, again.Fence, before.Fence)
		}
	}
	if err := s.Complete(t.Context(), held, nil, time.Hour); !errors.Is(err, storage.ErrLeaseLost) {
		t.Errorf("complete by the former holder: %v, want %v", err, storage.ErrLeaseLost)
	}
	if err := s.Extend(t.Context(), held, time.Hour); !errors.Is(err, storage.ErrLeaseLost) {
		t.Errorf("extend by the former holder: %v, want %v", err, storage.ErrLeaseLost)
	}
}

// heldAndCompleted claims two keys and completes the second.
func heldAndCompleted(t *testing.T, s *redis.Store) (held, completed storage.Lease) {
	t.Helper()
	held = claim(t, s, storage.Key{Scope: "shipping", ID: "held"}, request())
	completed = claim(t, s, storage.Key{Scope: "shipping", ID: "completed"}, request())
	complete(t, s, completed, "shipped")
	return held, completed
}

// warns asserts that Check has a problem with the text.
func warns(t *testing.T, s *redis.Store, text string) {
	t.Helper()
	problems, err := s.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.Contains(p.Text, ": "+text) {
			return
		}
	}
	t.Errorf("Check finds %v, want %q", problems, text)
}

func TestE2ERestartWithoutPersistenceForgets(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, server.Client(t), redis.Options{})
	warns(t, s, "nothing is kept on disk")
	held, completed := heldAndCompleted(t, s)
	server.Restart(t)
	forgotten(t, s, held, completed)
}

// With everysec, a crash while the file is synchronised forgets everything
// written meanwhile (see the package's comment).
func TestE2ECrashWithAppendOnlyFileForgetsNothing(t *testing.T) {
	server := redistest.Start(t, redistest.Setting("appendonly", "yes"), redistest.Setting("appendfsync", "always"))
	s := newStore(t, server.Client(t), redis.Options{})
	held, completed := heldAndCompleted(t, s)
	server.Kill(t)
	server.Resume(t)
	if got := outcome(t, s, held.Key); got != storage.InProgress {
		t.Errorf("the held key: %s, want %s", got, storage.InProgress)
	}
	if got := outcome(t, s, completed.Key); got != storage.Duplicate {
		t.Errorf("the completed key: %s, want %s", got, storage.Duplicate)
	}
	complete(t, s, held, "late")
}

func TestE2EServerThatReadsItsDataRefuses(t *testing.T) {
	// The server answers after every 1024 commands read, each of them slow here.
	server := redistest.Start(t, redistest.Setting("appendonly", "yes"), redistest.Setting("appendfsync", "always"), redistest.Setting("key-load-delay", "300"))
	client := server.Client(t, func(o *goredis.Options) { o.MaxRetries = -1 })
	s := newStore(t, client, redis.Options{})
	held, completed := heldAndCompleted(t, s)
	if _, err := client.Pipelined(t.Context(), func(p goredis.Pipeliner) error {
		for i := range 8000 {
			p.Set(t.Context(), fmt.Sprint("other-", i), "", 0)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var err error
	for range 5 { // the question may come too late
		if err = askWhileReading(t, server, s, completed.Key); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), ": wait") || storage.Answered(err) {
		t.Errorf("claim while the server reads its data: %v, want LOADING with a hint", err)
	}
	if got := outcome(t, s, completed.Key); got != storage.Duplicate {
		t.Errorf("the completed key: %s, want %s", got, storage.Duplicate)
	}
	complete(t, s, held, "late")
}

// askWhileReading kills the server and returns the first answer to a claim
// afterwards.
func askWhileReading(t *testing.T, server *redistest.Server, s *redis.Store, k storage.Key) error {
	t.Helper()
	server.Kill(t)
	answered := make(chan error, 1)
	go func() { // ends with the first answer, or the test
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			// The client itself would dial less and less often.
			if conn, err := net.Dial("tcp", server.Addr()); err == nil {
				_ = conn.Close()
			} else if t.Context().Err() == nil {
				continue
			}
			_, err := s.Claim(t.Context(), k, request())
			if err == nil || goredis.HasErrorPrefix(err, "LOADING") || t.Context().Err() != nil {
				answered <- err
				return
			}
		}
	}()
	server.Resume(t)
	return <-answered
}

// failover is a client told of another master.
type failover struct{ addr atomic.Pointer[string] }

func (f *failover) to(s *redistest.Server) {
	addr := s.Addr()
	f.addr.Store(&addr)
}

func (f *failover) client(t *testing.T) *goredis.Client {
	client := goredis.NewClient(&goredis.Options{
		ReadTimeout: patience, WriteTimeout: patience,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", *f.addr.Load())
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestE2EFailoverToReplicaThatLagged(t *testing.T) {
	master := redistest.StartBeside(t)
	replica := redistest.Replica(t, master)
	var f failover
	f.to(master.Server)
	client := f.client(t)
	s := newStore(t, client, redis.Options{})
	warns(t, s, "min-replicas-to-write is 0")

	promote(t, replica) // without the writes that follow
	held, completed := heldAndCompleted(t, s)
	waiting := newStore(t, client, redis.Options{WaitReplicas: 1, WaitTimeout: 10 * time.Millisecond})
	if _, err := waiting.Claim(t.Context(), key, request()); !tooFewReplicas(err) {
		t.Errorf("claim that waits for a replica: %v, want %v", err, tooFew)
	}
	master.Kill(t)
	f.to(replica)
	forgotten(t, s, held, completed)
}

func promote(t *testing.T, replica *redistest.Server) {
	t.Helper()
	if err := replica.Client(t).ReplicaOf(t.Context(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
}

func TestE2EMasterThatIsCutOffRefusesClaims(t *testing.T) {
	master := redistest.StartBeside(t, redistest.Setting("appendonly", "yes"), redistest.Setting("min-replicas-to-write", "1"))
	replica := redistest.Replica(t, master)
	s := newStore(t, master.Client(t), redis.Options{})
	master.Await(t, "replication", "min_slaves_good_slaves:1")
	if problems, err := s.Check(t.Context()); len(problems) > 0 || err != nil {
		t.Errorf("Check: %v, %v, want nothing", problems, err)
	}
	claim(t, s, key, request())
	promote(t, replica)
	master.Await(t, "replication", "connected_slaves:0")
	_, err := s.Claim(t.Context(), storage.Key{Scope: "shipping", ID: "later"}, request())
	if err == nil || !strings.Contains(err.Error(), "NOREPLICAS") || storage.Answered(err) {
		t.Errorf("claim without replicas: %v, want NOREPLICAS", err)
	}
}

func TestFlushedScriptsAreSentAgain(t *testing.T) {
	master := redistest.StartBeside(t)
	redistest.Replica(t, master)
	for name, replicas := range map[string]int{"in calls": 0, "in pipelines": 1} {
		t.Run(name, func(t *testing.T) {
			client := master.Client(t)
			flush := func() {
				if err := master.Client(t).ScriptFlush(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
			}
			s := newStore(t, client, redis.Options{WaitReplicas: replicas, WaitTimeout: patience / 2})
			lease := claim(t, s, key, request())
			flush()
			if err := s.Extend(t.Context(), lease, time.Hour); err != nil {
				t.Error(err)
			}
			flush()
			complete(t, s, lease, "shipped")
			flush()
			if got := outcome(t, s, key); got != storage.Duplicate {
				t.Errorf("%s, want %s", got, storage.Duplicate)
			}
			client.AddHook(beforePipeline(flush))
			if n, err := s.Purge(t.Context(), storage.Filter{Scope: key.Scope}); n != 1 || err != nil {
				t.Errorf("purge: %d, %v, want 1", n, err)
			}
		})
	}
}

// beforePipeline is a client's hook.
type beforePipeline func()

func (beforePipeline) DialHook(next goredis.DialHook) goredis.DialHook          { return next }
func (beforePipeline) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }
func (f beforePipeline) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		f()
		return next(ctx, cmds)
	}
}

// fill completes n keys with results of 64 KiB, or fewer if there is an error,
// and returns their leases. Everything evicted between the claim and the
// completion is left out.
func fill(t *testing.T, s *redis.Store, n int) ([]storage.Lease, error) {
	t.Helper()
	var leases []storage.Lease
	result := make([]byte, 64<<10)
	for i := range n {
		c, err := s.Claim(t.Context(), storage.Key{Scope: "fill", ID: fmt.Sprint(i)}, request())
		if err != nil {
			return leases, err
		}
		switch err := s.Complete(t.Context(), c.Lease, result, time.Hour); {
		case err == nil:
			leases = append(leases, c.Lease)
		case !errors.Is(err, storage.ErrLeaseLost):
			return leases, err
		}
	}
	return leases, nil
}

func TestE2EEvictionForgets(t *testing.T) {
	server := redistest.Start(t, redistest.Setting("maxmemory", "8mb"), redistest.Setting("maxmemory-policy", "volatile-lru"))
	client := server.Client(t)
	s := newStore(t, client, redis.Options{})
	warns(t, s, "maxmemory-policy is volatile-lru")
	leases, err := fill(t, s, 200) // there is room for 128 at most
	if err != nil {
		t.Fatal(err)
	}
	warns(t, s, "maxmemory-policy is volatile-lru: at maxmemory keys vanish, and their messages are run again; ")
	again := 0
	for _, before := range leases {
		c, err := s.Claim(t.Context(), before.Key, request())
		if err != nil {
			t.Fatal(err)
		}
		if c.Outcome == storage.Claimed {
			again++
			if c.Lease.Fence <= before.Fence {
				t.Errorf("fence %d after %d", c.Lease.Fence, before.Fence)
			}
		}
	}
	if again == 0 {
		t.Error("every completed key is still a duplicate, although keys were evicted")
	}
}

func TestE2EFullServerRefusesClaimsOnly(t *testing.T) {
	server := redistest.Start(t, redistest.Setting("maxmemory", "8mb"), redistest.Setting("maxmemory-policy", "noeviction"))
	client := server.Client(t)
	s := newStore(t, client, redis.Options{})
	held := claim(t, s, key, request())
	leases, err := fill(t, s, 200) // there is room for 128 at most
	if err == nil || !strings.Contains(err.Error(), "OOM") || !strings.Contains(err.Error(), "maxmemory:") {
		t.Fatalf("claim on a full server: %v, want OOM with a hint", err)
	}
	if len(leases) == 0 {
		t.Fatal("the server was full from the start")
	}
	do(t, client, "CONFIG", "SET", "maxmemory", "4mb") // full for sure, not just about
	for _, lease := range leases {
		if got, err := s.Inspect(t.Context(), lease.Key); err != nil || got.State != storage.Completed {
			t.Fatalf("inspect %s: %s, %v, want %s", lease.Key, got.State, err, storage.Completed)
		}
	}
	complete(t, s, held, "settled all the same")
	if n, err := s.Purge(t.Context(), storage.Filter{Scope: "fill"}); n != len(leases) || err != nil {
		t.Errorf("purge: %d, %v, want %d", n, err, len(leases))
	}
	claim(t, s, storage.Key{Scope: "fill", ID: "after"}, request())
}

func TestE2EPauseBeyondTheLease(t *testing.T) {
	const lease = 100 * time.Millisecond
	server := redistest.Start(t)
	s := newStore(t, server.Client(t, func(o *goredis.Options) { o.ContextTimeoutEnabled = true }), redis.Options{})
	former := claim(t, s, key, shortLease(lease))

	server.Pause(t)
	successor := request()
	ctx, cancel := context.WithTimeout(t.Context(), 2*lease)
	defer cancel()
	if c, err := s.Claim(ctx, key, successor); err == nil || storage.Answered(err) {
		t.Fatalf("claim on a paused server: %v, %v, want no answer", c, err)
	}
	server.Continue(t)

	// Everything asked may have been carried out: asking again by the same owner
	// is safe.
	got := claim(t, s, key, successor)
	if got.Fence <= former.Fence {
		t.Errorf("fence %d after %d", got.Fence, former.Fence)
	}
	if err := s.Complete(t.Context(), former, nil, time.Hour); !errors.Is(err, storage.ErrLeaseLost) {
		t.Errorf("complete by the former holder: %v, want %v", err, storage.ErrLeaseLost)
	}
	complete(t, s, got, "shipped")
}
