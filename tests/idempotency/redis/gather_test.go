package redis_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/hook"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redistest"
)

// mates is the number of calls in a shared round trip of the tests.
const mates = 20

func mate(n int) storage.Key { return storage.Key{Scope: "shipping", ID: fmt.Sprintf("mate-%d", n)} }

// gatherUntil lets round trips wait until so many calls have joined; from then on
// nothing waits.
func gatherUntil(s *redis.Store, calls int) {
	var enough atomic.Bool
	hook.RedisYield(s, func(joined func() int) {
		for !enough.Load() {
			if joined() >= calls {
				enough.Store(true)
			}
			runtime.Gosched()
		}
	})
}

// answer is a claim's answer.
type answer struct {
	storage.Claim
	err error
}

// claimTogether makes the claims at the same moment.
func claimTogether(ctx context.Context, s *redis.Store, reqs []storage.ClaimRequest) []answer {
	gatherUntil(s, len(reqs))
	answers := make([]answer, len(reqs))
	var calls sync.WaitGroup
	for n, req := range reqs {
		calls.Go(func() { answers[n].Claim, answers[n].err = s.Claim(ctx, mate(n), req) })
	}
	calls.Wait()
	return answers
}

func requests() []storage.ClaimRequest {
	reqs := make([]storage.ClaimRequest, mates)
	for n := range reqs {
		reqs[n] = request()
	}
	return reqs
}

// allFirst asserts that each claim was granted for the first time.
func allFirst(t *testing.T, answers []answer, reqs []storage.ClaimRequest) {
	t.Helper()
	for n, a := range answers {
		if a.err != nil || a.Outcome != storage.Claimed || a.Attempts != 1 || a.Lease.Key != mate(n) || a.Lease.Owner != reqs[n].Owner {
			t.Errorf("claim %d: %+v, %v", n, a.Claim, a.err)
		}
	}
}

// aroundPipeline is a client's hook; not for the first pipelines of connections.
type aroundPipeline func(cmds []goredis.Cmder, next func() error) error

func (aroundPipeline) DialHook(next goredis.DialHook) goredis.DialHook          { return next }
func (aroundPipeline) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }
func (f aroundPipeline) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		if cmds[0].Name() != "evalsha" {
			return next(ctx, cmds)
		}
		return f(cmds, func() error { return next(ctx, cmds) })
	}
}

// keysOf counts the keys of the commands, each running a script.
func keysOf(cmds []goredis.Cmder) (n int) {
	for _, cmd := range cmds {
		n += cmd.Args()[2].(int)
	}
	return n
}

func TestCallsOfOneMomentShareARoundTrip(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	var shared atomic.Int64
	client.AddHook(aroundPipeline(func(cmds []goredis.Cmder, next func() error) error {
		if len(cmds) == 1 && keysOf(cmds) == mates {
			shared.Add(1)
		}
		return next()
	}))
	s := newStore(t, client, redis.Options{})
	reqs := requests()
	answers := claimTogether(t.Context(), s, reqs)
	allFirst(t, answers, reqs)

	gatherUntil(s, mates)
	var calls sync.WaitGroup
	for n, a := range answers {
		calls.Go(func() {
			if n%2 == 0 { // every second by a stranger
				a.Lease.Owner = "somebody else"
			}
			err := s.Complete(t.Context(), a.Lease, fmt.Append(nil, "result of ", n), time.Hour)
			if n%2 == 0 && !errors.Is(err, storage.ErrLeaseLost) || n%2 == 1 && err != nil {
				t.Errorf("complete %d: %v", n, err)
			}
		})
	}
	calls.Wait()
	if n := shared.Load(); n != 2 {
		t.Errorf("%d commands were shared by all, want one of the claims and one of the completions", n)
	}
	for n, a := range claimTogether(t.Context(), s, requests()) {
		want, result := storage.InProgress, ""
		if n%2 == 1 {
			want, result = storage.Duplicate, fmt.Sprint("result of ", n)
		}
		if a.err != nil || a.Outcome != want || string(a.Result) != result {
			t.Errorf("claim %d, again: %+v, %v; want %s with %q", n, a.Claim, a.err, want, result)
		}
	}
}

// A call without company goes by itself.
func TestALoneCallIsNoPipeline(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	client.AddHook(aroundPipeline(func([]goredis.Cmder, func() error) error {
		t.Error("a pipeline")
		return nil
	}))
	s := newStore(t, client, redis.Options{})
	complete(t, s, claim(t, s, key, request()), "shipped")
}

func TestScriptsThatAreFlushedBeneathASharedRoundTrip(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	client.AddHook(beforePipeline(func() {
		if err := server.Client(t).ScriptFlush(t.Context()).Err(); err != nil {
			t.Error(err)
		}
	}))
	s := newStore(t, client, redis.Options{})
	reqs := requests()
	allFirst(t, claimTogether(t.Context(), s, reqs), reqs)
}

// The outcome of a call is unknown after a lost answer, and found out by asking
// again.
func TestASharedRoundTripThatBreaks(t *testing.T) {
	for name, loses := range map[string]func(cmds []goredis.Cmder, next func() error) error{
		"before it is sent": func(cmds []goredis.Cmder, _ func() error) error {
			for _, cmd := range cmds {
				cmd.SetErr(io.EOF)
			}
			return io.EOF
		},
		"by a hook that does not send it": func([]goredis.Cmder, func() error) error { return io.EOF },
		"before the first answer": func(cmds []goredis.Cmder, next func() error) error {
			err := next()
			for _, cmd := range cmds {
				cmd.SetErr(io.EOF)
			}
			return errors.Join(io.EOF, err)
		},
		"by a panic": func([]goredis.Cmder, func() error) error { panic("a hook") },
	} {
		t.Run(name, func(t *testing.T) {
			client := redistest.Shared(t).Client(t)
			var broken atomic.Bool
			client.AddHook(aroundPipeline(func(cmds []goredis.Cmder, next func() error) error {
				if broken.Swap(true) {
					return next()
				}
				return loses(cmds, next)
			}))
			s := newStore(t, client, redis.Options{})
			reqs := requests()
			lost := 0
			for n, a := range claimTogether(t.Context(), s, reqs) {
				switch {
				case a.err != nil && storage.Answered(a.err):
					t.Errorf("claim %d: %v counts as an answer", n, a.err)
				case a.err != nil:
					lost++
					if name != "by a panic" && !errors.Is(a.err, io.EOF) {
						t.Errorf("claim %d: %v does not say why", n, a.err)
					}
				case a.Outcome != storage.Claimed:
					t.Errorf("claim %d: %+v", n, a.Claim)
				}
			}
			if lost != mates {
				t.Errorf("%d calls have no answer", lost)
			}
			allFirst(t, claimTogether(t.Context(), s, reqs), reqs)
		})
	}
}

// A foreign key spoils only the call about the key.
func TestASharedRoundTripWithForeignKeys(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	s := newStore(t, client, redis.Options{})
	name := func(n int) string { return fmt.Sprintf("%s:{%s}", prefix(t), mate(n)) }
	if err := errors.Join(
		client.RPush(t.Context(), name(3), "a list").Err(),
		client.Set(t.Context(), name(7), "a string", 0).Err(),
		client.Set(t.Context(), name(9), "idempotency:1:cut short", 0).Err(),
	); err != nil {
		t.Fatal(err)
	}
	claim(t, s, key, request()) // the server knows the script from now on
	var again atomic.Int64
	client.AddHook(eachCommand(func(name string) {
		if name == "evalsha" { // connections begin with others
			again.Add(1)
		}
	}))
	reqs := requests()
	foreign := map[int]bool{3: true, 7: true, 9: true}
	answers := claimTogether(t.Context(), s, reqs)
	for n, a := range answers {
		if foreign[n] && (a.err == nil || !strings.Contains(a.err.Error(), "WRONGTYPE") || storage.Answered(a.err)) || !foreign[n] && a.Outcome != storage.Claimed {
			t.Errorf("claim %d: %+v, %v", n, a.Claim, a.err)
		}
	}
	if n := again.Load(); n != int64(len(foreign)) {
		t.Errorf("%d calls were asked for again, by themselves", n)
	}
	gatherUntil(s, mates)
	var calls sync.WaitGroup
	for n, a := range answers {
		calls.Go(func() {
			lease := a.Lease
			if foreign[n] {
				lease = storage.Lease{Key: mate(n), Owner: "somebody", Fence: 1}
			}
			if err := s.Complete(t.Context(), lease, nil, time.Hour); (err != nil) != foreign[n] {
				t.Errorf("complete %d: %v", n, err)
			}
		})
	}
	calls.Wait()
}

// eachCommand is a client's hook; not for pipelines.
type eachCommand func(name string)

func (eachCommand) DialHook(next goredis.DialHook) goredis.DialHook { return next }
func (eachCommand) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}
func (f eachCommand) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		f(cmd.Name())
		return next(ctx, cmd)
	}
}

// A node of a cluster, behind a client taking it for a server by itself,
// refuses a command with keys of several hash slots. From then on each key has a
// separate command. Their answers count if received before the connection broke.
func TestAServerWithHashSlots(t *testing.T) {
	node, _ := redistest.StartNode(t)
	client := node.Client(t)
	if err := client.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the node serves", func() bool {
		return strings.Contains(client.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
	const came = mates / 3
	var trips []int // commands
	client.AddHook(aroundPipeline(func(cmds []goredis.Cmder, next func() error) error {
		err := next()
		if trips = append(trips, len(cmds)); len(trips) == 2 {
			for _, cmd := range cmds[min(came, len(cmds)):] {
				cmd.SetErr(io.EOF)
			}
		}
		return err
	}))
	s := newStore(t, client, redis.Options{})
	reqs := requests()
	allFirst(t, claimTogether(t.Context(), s, reqs), reqs)
	lost := 0
	for n, a := range claimTogether(t.Context(), s, reqs) { // the same owners get the same
		switch {
		case a.err != nil && !storage.Answered(a.err) && errors.Is(a.err, io.EOF):
			lost++
		case a.err != nil || a.Outcome != storage.Claimed:
			t.Errorf("claim %d, again: %+v, %v", n, a.Claim, a.err)
		}
	}
	if lost != mates-came {
		t.Errorf("%d calls have no answer", lost)
	}
	allFirst(t, claimTogether(t.Context(), s, reqs), reqs)
	if want := []int{1, mates, mates}; !slices.Equal(trips, want) {
		t.Errorf("round trips of %d commands, want %d", trips, want)
	}
}

// A long round trip holds up no caller after the end of the context, nor a later
// call.
func TestASharedRoundTripThatHangs(t *testing.T) {
	t.Run("calls without a deadline", func(t *testing.T) { sharedRoundTripHangs(t.Context(), t) })
	t.Run("calls with the same deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		sharedRoundTripHangs(ctx, t)
	})
}

func sharedRoundTripHangs(ctx context.Context, t *testing.T) {
	client := redistest.Shared(t).Client(t)
	hanging, release, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var hung atomic.Bool
	client.AddHook(aroundPipeline(func(_ []goredis.Cmder, next func() error) error {
		if hung.Swap(true) {
			return next()
		}
		defer close(over)
		close(hanging)
		<-release
		return next()
	}))
	s := newStore(t, client, redis.Options{})
	ctx, cancel := context.WithCancel(ctx)
	reqs := requests()
	var answers []answer
	var first sync.WaitGroup
	first.Go(func() { answers = claimTogether(ctx, s, reqs) })
	<-hanging
	claim(t, s, key, request()) // beside it
	cancel()
	first.Wait()
	for n, a := range answers {
		if !errors.Is(a.err, context.Canceled) || storage.Answered(a.err) {
			t.Errorf("claim %d: %+v, %v", n, a.Claim, a.err)
		}
	}
	close(release)
	<-over // everything asked is carried out all the same
	allFirst(t, claimTogether(t.Context(), s, reqs), reqs)
}

// A completion goes before the claims of the moment, also where a claim came
// first: a claim may be of the same key, or of the message behind.
func TestACompletionGoesBeforeTheClaimsOfItsMoment(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	s := newStore(t, client, redis.Options{})
	complete(t, s, claim(t, s, mate(0), request()), "") // the server knows the scripts from now on
	lease := claim(t, s, key, request())
	claims := make(chan struct{})
	hook.RedisYield(s, func(joined func() int) {
		close(claims) // the first has come
		for joined() < 3 {
			runtime.Gosched()
		}
	})
	var calls sync.WaitGroup
	calls.Go(func() { claim(t, s, mate(1), request()) })
	<-claims
	again, claimErr, err := s.CompleteAndClaim(t.Context(), s, lease, []byte("shipped"), time.Hour, key, request())
	calls.Wait()
	if claimErr != nil || err != nil || again.Outcome != storage.Duplicate || string(again.Result) != "shipped" {
		t.Errorf("%+v, %v, %v; want the completed key", again, claimErr, err)
	}
}

// A call with little time shares a round trip with a patient call: each keeps its
// own deadline.
func TestASharedRoundTripOfCallsWithDifferentTimes(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	release, over := make(chan struct{}), make(chan struct{})
	client.AddHook(aroundPipeline(func(_ []goredis.Cmder, next func() error) error {
		defer close(over)
		<-release
		return next()
	}))
	s := newStore(t, client, redis.Options{})
	leads := make(chan struct{})
	var once sync.Once
	hook.RedisYield(s, func(joined func() int) {
		once.Do(func() { close(leads) })
		for joined() == 1 {
			runtime.Gosched()
		}
	})
	short, cancel := context.WithTimeout(t.Context(), time.Second) // outlasts the departure of the round trip
	defer cancel()
	hasty, patient := make(chan answer, 1), make(chan answer, 1)
	ask := func(ctx context.Context, n int, answers chan<- answer) {
		c, err := s.Claim(ctx, mate(n), request())
		answers <- answer{c, err}
	}
	go ask(short, 0, hasty)
	<-leads
	long, cancelLong := context.WithTimeout(t.Context(), time.Hour)
	defer cancelLong()
	go ask(long, 1, patient)
	if a := <-hasty; !errors.Is(a.err, context.DeadlineExceeded) {
		t.Errorf("the hasty call: %+v, %v", a.Claim, a.err)
	}
	close(release)
	if a := <-patient; a.err != nil || a.Outcome != storage.Claimed {
		t.Errorf("the patient call: %+v, %v", a.Claim, a.err)
	}
	<-over
}

// A call is not sent if the context has ended before the round trip.
func TestASharedRoundTripWithoutThoseWhoLeft(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	var sent atomic.Int64
	client.AddHook(aroundPipeline(func(cmds []goredis.Cmder, next func() error) error {
		sent.Add(int64(keysOf(cmds)))
		return next()
	}))
	s := newStore(t, client, redis.Options{})
	gatherUntil(s, 3)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var calls sync.WaitGroup
	for n, ctx := range []context.Context{gone, t.Context(), t.Context()} {
		calls.Go(func() {
			if _, err := s.Claim(ctx, mate(n), request()); (err != nil) != (n == 0) {
				t.Errorf("claim %d: %v", n, err)
			}
		})
	}
	calls.Wait()
	if r, err := s.Inspect(t.Context(), mate(0)); err != nil || r.State != storage.Absent || sent.Load() != 2 {
		t.Errorf("%d calls are sent, and the key is %s, %v; want 2, and absent", sent.Load(), r.State, err)
	}
}

// The calls of a cluster's servers go apart: a silent server holds up its own
// only.
func TestE2EASilentServerOfACluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	client := cluster.Client(t)
	s := newStore(t, client, redis.Options{Prefix: "p"})
	reqs := requests()
	allFirst(t, claimTogether(t.Context(), s, reqs), reqs) // the client knows the cluster from now on

	silent := cluster.Nodes[0]
	silent.Pause(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	mine := make([]bool, mates)
	var others, all sync.WaitGroup
	gatherUntil(s, mates)
	for n := range mates {
		node, err := client.MasterForKey(t.Context(), fmt.Sprintf("p:{%s}", mate(n)))
		if err != nil {
			t.Fatal(err)
		}
		mine[n] = node.Options().Addr == silent.Addr()
		if !mine[n] {
			others.Add(1)
		}
	}
	answers := make([]answer, mates)
	for n := range mates {
		all.Go(func() {
			answers[n].Claim, answers[n].err = s.Claim(ctx, mate(n), reqs[n])
			if !mine[n] {
				others.Done()
			}
		})
	}
	others.Wait()
	cancel()
	all.Wait()
	held := 0
	for n, a := range answers {
		switch {
		case mine[n]:
			held++
			if storage.Answered(a.err) {
				t.Errorf("claim %d at the silent server: %+v, %v", n, a.Claim, a.err)
			}
		case a.err != nil || a.Outcome != storage.Claimed:
			t.Errorf("claim %d: %+v, %v", n, a.Claim, a.err)
		}
	}
	if held == 0 || held == mates {
		t.Errorf("%d of %d keys are at one server", held, mates)
	}
	silent.Continue(t)
	allFirst(t, claimTogether(t.Context(), s, reqs), reqs)
}
