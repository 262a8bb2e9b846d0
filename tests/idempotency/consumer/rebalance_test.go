package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
)

// shortSessions lets the broker expel killed members.
var shortSessions = kafkatest.Setting("group.min.session.timeout.ms", "500")

// TestE2EMembersComeAndGo lets members join, leave and die at random while they
// work.
func TestE2EMembersComeAndGo(t *testing.T) {
	t.Parallel()
	for name, balancer := range map[string]kgo.GroupBalancer{
		"cooperative-sticky": kgo.CooperativeStickyBalancer(), "eager range": kgo.RangeBalancer(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const partitions, n, keys = 6, 250, 4
			b := kafkatest.Start(t, shortSessions)
			b.CreateTopic(t, "orders", partitions, nil)
			records := load(t, b, partitions, n, keys)
			l, check := newLedger(), newChecker(true)
			handler := func(ctx context.Context, r *kgo.Record) error {
				defer check.begin(r)()
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(rand.N(8 * time.Millisecond)):
				}
				if rand.N(50) == 0 {
					return errDown
				}
				check.finish(r)
				return nil
			}
			members := make([]*hostage, 3)
			for i := range members {
				members[i] = join(t, b, l, balancer, handler)
			}
			for i := range 6 {
				before := check.count()
				await.Until(t, "progress", func() bool { return check.count() > before+40 || check.count() == len(records) })
				victim := rand.N(len(members))
				if i%3 == 2 {
					members[victim].kill()
					expel(t, b, members[victim].id)
				} else {
					members[victim].stop(t)
				}
				members[victim] = join(t, b, l, balancer, handler)
			}
			admin := kadm.NewClient(b.Client(t))
			eventuallyCommitted(t, admin, partitions, n)
			check.verify(t)
			if check.count() != len(records) {
				t.Errorf("%d records were handled, want %d", check.count(), len(records))
			}
		})
	}
}

// expel returns when the broker has expelled a killed member. kfake never does
// so if the connection broke between the member's join and the sync: then the
// member is made to leave.
func expel(t *testing.T, b *kafkatest.Broker, clientID string) {
	t.Helper()
	client := b.Client(t)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	patience := time.Now().Add(4 * time.Second) // the session timeout, and a rebalance
	await.Until(t, "the killed member to be expelled", func() bool {
		groups, err := kadm.NewClient(client).DescribeGroups(ctx, group)
		if err != nil {
			return false
		}
		for _, m := range groups[group].Members {
			if m.ClientID != clientID {
				continue
			}
			if time.Now().After(patience) && !kafkatest.Real() {
				leave := kmsg.NewPtrLeaveGroupRequest()
				leave.Group, leave.MemberID = group, m.MemberID
				leave.Members = []kmsg.LeaveGroupRequestMember{{MemberID: m.MemberID}}
				if _, err := leave.RequestWith(ctx, client); err != nil {
					t.Error(err)
				}
			}
			return false
		}
		return true
	})
}

// hostage is a member with connections that can be cut for good.
type hostage struct {
	*member
	id    string
	mu    sync.Mutex
	conns []net.Conn
	dead  bool
}

func join(t *testing.T, b *kafkatest.Broker, l *ledger, balancer kgo.GroupBalancer, h consumer.Handler) *hostage {
	t.Helper()
	m := &hostage{id: fmt.Sprintf("member-%d", rand.Int64())}
	cfg := config(b, l, h)
	cfg.Concurrency = 4
	cfg.KeyOrder = true
	cfg.RevokeTimeout = time.Second // how long the others wait for a killed member depends on RevokeTimeout
	cfg.Options = append(cfg.Options, kgo.Balancers(balancer), kgo.SessionTimeout(time.Second), kgo.Dialer(m.dial), kgo.ClientID(m.id),
		kgo.RetryTimeout(time.Second), kgo.RequestRetries(3), kgo.RequestTimeoutOverhead(time.Second))
	m.member = start(t, cfg)
	return m
}

func (m *hostage) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case m.dead:
		return nil, errors.Join(errors.New("killed"), conn.Close())
	}
	m.conns = append(m.conns, conn)
	return conn, nil
}

// kill cuts the member off: for the broker it vanishes. The handlers stop, as in
// a killed process.
func (m *hostage) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
	for _, conn := range m.conns {
		conn.Close()
	}
	m.cancel()
}

func TestRevocationWaitsForTheHandler(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 2, nil)
	load(t, b, 2, 1, 1)
	running, finish := make(chan struct{}, 4), make(chan struct{})
	var handled, cutOff atomic.Int64
	cfg := config(b, newLedger(), func(ctx context.Context, _ *kgo.Record) error {
		running <- struct{}{}
		select {
		case <-finish:
			handled.Add(1)
			return nil
		case <-ctx.Done():
			cutOff.Add(1)
			return context.Cause(ctx)
		}
	})
	cfg.CommitInterval = time.Hour
	cfg.RevokeTimeout = time.Minute
	joined := revocations(&cfg)
	start(t, cfg)
	receive(t, "a handler", running)
	receive(t, "a handler", running)

	second := cfg
	second.Options = append([]kgo.Opt{}, config(b, nil, nil).Options...)
	start(t, second)
	receive(t, "the rebalance", joined)
	close(finish)
	admin := kadm.NewClient(b.Client(t))
	await.Until(t, "the revoked partition to be committed before it moved", func() bool {
		return committed(t, admin, 0)+committed(t, admin, 1) >= 1
	})
	await.Until(t, "both handlers to end", func() bool { return handled.Load()+cutOff.Load() >= 2 })
	if handled.Load() != 2 || cutOff.Load() != 0 {
		t.Errorf("%d handled, %d cut off; want 2 handled, none cut off", handled.Load(), cutOff.Load())
	}
}

// revocations returns a channel signalled when the client logs a revocation of
// partitions.
func revocations(cfg *consumer.Config) <-chan struct{} {
	seen := make(chan struct{}, 100)
	cfg.Options = append(cfg.Options, kgo.WithLogger(watch{seen}))
	return seen
}

type watch struct{ seen chan<- struct{} }

func (watch) Level() kgo.LogLevel { return kgo.LogLevelInfo }

func (w watch) Log(_ kgo.LogLevel, message string, keyvals ...any) {
	for i, k := range keyvals {
		if k == "lost" && message == "new group session begun" && fmt.Sprint(keyvals[i+1]) != "" {
			w.seen <- struct{}{}
		}
	}
}

func TestRevocationCutsOffWhatTakesTooLong(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 2, nil)
	load(t, b, 2, 1, 1)
	running, causes := make(chan struct{}, 10), make(chan error, 10)
	var second atomic.Bool
	cfg := config(b, newLedger(), func(ctx context.Context, _ *kgo.Record) error {
		if second.Load() {
			return nil
		}
		running <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return context.Cause(ctx)
	})
	cfg.RevokeTimeout = 200 * time.Millisecond
	cfg.DrainTimeout = 200 * time.Millisecond
	cfg.Options = append(cfg.Options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	start(t, cfg)
	receive(t, "a handler", running)
	receive(t, "a handler", running)
	other := cfg
	var taken atomic.Int64
	other.Handler = func(context.Context, *kgo.Record) error { taken.Add(1); return nil }
	start(t, other)
	if cause := receive(t, "the cause", causes); !cutOff(cause, "the partition is revoked") {
		t.Errorf("the handler's context ended because %v", cause)
	}
	await.Until(t, "the new owner to handle the record", func() bool { return taken.Load() == 1 })
	second.Store(true)
}

// TestExpulsionCutsOffAtOnce: a member unknown to the broker has lost the
// partitions.
func TestExpulsionCutsOffAtOnce(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t, shortSessions)
	b.CreateTopic(t, "orders", 1, nil)
	load(t, b, 1, 1, 1)
	running, causes := make(chan struct{}, 10), make(chan error, 10)
	var again atomic.Bool
	cfg := config(b, newLedger(), func(ctx context.Context, _ *kgo.Record) error {
		if again.Swap(true) {
			return nil
		}
		running <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return context.Cause(ctx)
	})
	cfg.Options = append(cfg.Options, kgo.InstanceID("one"))
	start(t, cfg)
	receive(t, "the handler", running)
	admin := kadm.NewClient(b.Client(t))
	if _, err := admin.LeaveGroup(t.Context(), kadm.LeaveGroup(group).InstanceIDs("one")); err != nil {
		t.Fatal(err)
	}
	if cause := receive(t, "the cause", causes); !cutOff(cause, "the partition is lost") {
		t.Errorf("the handler's context ended because %v", cause)
	}
	eventuallyCommitted(t, admin, 1, 1)
}

// TestAHandlerThatHeedsNothingDoesNotKeepTheGroup: Run waits for the handler, the
// other members do not.
func TestAHandlerThatHeedsNothingDoesNotKeepTheGroup(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 1, nil)
	load(t, b, 1, 1, 1)
	running, finish := make(chan struct{}, 1), make(chan struct{})
	cfg := config(b, newLedger(), func(context.Context, *kgo.Record) error {
		running <- struct{}{}
		<-finish
		return nil
	})
	var told log
	cfg.Logger = slog.New(slog.NewTextHandler(&told, nil))
	cfg.DrainTimeout, cfg.RevokeTimeout = time.Millisecond, 10*time.Second // also to leave, on a machine standing still
	m := start(t, cfg)
	receive(t, "the handler", running)
	m.cancel()
	admin := kadm.NewClient(b.Client(t))
	await.Until(t, "the group to be left", func() bool {
		groups, err := admin.DescribeGroups(t.Context(), group)
		return err == nil && len(groups[group].Members) == 0
	})
	close(finish)
	m.stop(t)
	if lines := told.lines("cannot leave"); len(lines) != 0 {
		t.Error(lines)
	}
}
