package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
)

// faulty starts a kfake cluster, to be made to answer wrongly, with the topic
// orders.
func faulty(t *testing.T) (*kfake.Cluster, *kafkatest.Broker) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster, &kafkatest.Broker{Brokers: cluster.ListenAddrs()}
}

func TestForbiddenGroupEndsRun(t *testing.T) {
	t.Parallel()
	cluster, b := faulty(t)
	cluster.ControlKey(int16(kmsg.JoinGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
		return resp, nil, true
	})
	m := start(t, config(b, newLedger(), func(context.Context, *kgo.Record) error { return nil }))
	if err := m.end(t); !errors.Is(err, kerr.GroupAuthorizationFailed) {
		t.Errorf("Run returned %v", err)
	}
}

// Another client's members may divide partitions in another way.
func TestAGroupOfAnotherClient(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 2, nil)
	other := b.Client(t, kgo.ConsumerGroup(group), kgo.ConsumeTopics("orders"), kgo.Balancers(kgo.RangeBalancer()),
		kgo.HeartbeatInterval(100*time.Millisecond))
	load(t, b, 2, 5, 1)
	if fetches := other.PollFetches(t.Context()); fetches.Err() != nil {
		t.Fatal(fetches.Err())
	}
	s := newSeen()
	cfg := config(b, newLedger(), s.handle)
	err := start(t, cfg).end(t)
	if !errors.Is(err, kerr.InconsistentGroupProtocol) || !strings.Contains(err.Error(), "kgo.RangeBalancer") {
		t.Errorf("Run returned %v", err)
	}
	cfg.Options = append(cfg.Options, kgo.Balancers(kgo.RangeBalancer()))
	start(t, cfg)
	await.Until(t, "records of its partition", func() bool { return s.count() > 0 })
}

func TestWrongPasswordEndsRun(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "user", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	// kfake hangs up, Kafka answers.
	cluster.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		return resp, nil, true
	})
	cfg := config(&kafkatest.Broker{Brokers: cluster.ListenAddrs()}, newLedger(), func(context.Context, *kgo.Record) error { return nil })
	cfg.Options = append(cfg.Options, kgo.SASL(plain.Auth{User: "user", Pass: "wrong"}.AsMechanism()))
	m := start(t, cfg)
	if err := m.end(t); !errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Errorf("Run returned %v", err)
	}
}

// refuseCommits lets the next n commits fail, all for n below 0.
func refuseCommits(cluster *kfake.Cluster, n int, why *kerr.Error) *atomic.Int64 {
	var refused atomic.Int64
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if n >= 0 && refused.Load() == int64(n) {
			return nil, nil, false
		}
		refused.Add(1)
		commit := req.(*kmsg.OffsetCommitRequest)
		resp := commit.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, t := range commit.Topics {
			answer := kmsg.NewOffsetCommitResponseTopic()
			answer.Topic, answer.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				partition := kmsg.NewOffsetCommitResponseTopicPartition()
				partition.Partition, partition.ErrorCode = p.Partition, why.Code
				answer.Partitions = append(answer.Partitions, partition)
			}
			resp.Topics = append(resp.Topics, answer)
		}
		return resp, nil, true
	})
	return &refused
}

func TestRefusedCommitIsRepeated(t *testing.T) {
	t.Parallel()
	cluster, b := faulty(t)
	refused := refuseCommits(cluster, 3, kerr.RebalanceInProgress)
	load(t, b, 1, 1, 1)
	var failures atomic.Int64
	cfg := config(b, newLedger(), func(context.Context, *kgo.Record) error { return nil })
	cfg.Observer.Committed = func(_ time.Duration, err error) {
		if err != nil {
			failures.Add(1)
		}
	}
	start(t, cfg)
	admin := kadm.NewClient(b.Client(t))
	eventuallyCommitted(t, admin, 1, 1)
	if refused.Load() != 3 || failures.Load() != 3 {
		t.Errorf("%d commits were refused and %d reported, want 3", refused.Load(), failures.Load())
	}
}

func TestForbiddenCommitEndsRun(t *testing.T) {
	t.Parallel()
	cluster, b := faulty(t)
	refuseCommits(cluster, -1, kerr.GroupAuthorizationFailed)
	load(t, b, 1, 1, 1)
	m := start(t, config(b, newLedger(), func(context.Context, *kgo.Record) error { return nil }))
	if err := m.end(t); !errors.Is(err, kerr.GroupAuthorizationFailed) {
		t.Errorf("Run returned %v", err)
	}
}

// log is a buffer for a logger.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *log) lines(with string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, with) {
			found = append(found, line)
		}
	}
	return found
}

func TestRetentionShorterThanTheTopics(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	day := "86400000"
	for name, settings := range map[string]map[string]string{
		"short": {"retention.ms": "3600000"}, "long": {"retention.ms": day}, "endless": {"retention.ms": "-1"},
		"compacted": {"cleanup.policy": "compact", "retention.ms": "1000"}, "aged": {"retention.ms": "3600000"},
	} {
		b.CreateTopic(t, name, 1, settings)
	}
	old := &kgo.Record{Topic: "aged", Timestamp: time.Now().Add(-3 * time.Hour), Headers: record(0, "", "x").Headers}
	produce(t, b, old)
	var l log
	keeps := processor(t, func(o *idempotency.Options) { o.Retention = 2 * time.Hour })
	cfg := config(b, keeps, func(context.Context, *kgo.Record) error { return nil })
	cfg.Topics = []string{"short", "long", "endless", "compacted", "aged", "missing"}
	cfg.Logger = slog.New(slog.NewTextHandler(&l, nil))
	start(t, cfg)
	const warning = "the topic can be replayed"
	await.Until(t, "warnings", func() bool { return len(l.lines(warning)) >= 4 })
	for topic, window := range map[string]string{"long": "24h0m0s", "endless": "forever", "compacted": "forever", "aged": "1h0m0s"} {
		lines := l.lines("topic=" + topic + " ")
		if len(lines) != 1 || !strings.Contains(lines[0], "topic_retention="+window) || !strings.Contains(lines[0], "idempotency_retention=2h0m0s") {
			t.Errorf("of topic %s: %q", topic, lines)
		}
	}
	if lines := l.lines("topic=short "); len(lines) != 0 {
		t.Errorf("warned of a topic that is short enough: %q", lines)
	}
}

func TestMiddlewareWrapsInOrder(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 1, nil)
	load(t, b, 1, 1, 1)
	calls := make(chan string, 10)
	note := func(name string) func(consumer.Process) consumer.Process {
		return func(next consumer.Process) consumer.Process {
			calls <- "make " + name
			return func(ctx context.Context, r *kgo.Record) (idempotency.Result, error) {
				calls <- name
				return next(ctx, r)
			}
		}
	}
	cfg := config(b, newLedger(), func(ctx context.Context, r *kgo.Record) error {
		if consumer.RecordFrom(ctx) != r {
			t.Error("the handler's context holds another record")
		}
		calls <- "handler"
		return nil
	})
	cfg.Middleware = []func(consumer.Process) consumer.Process{note("outer"), note("inner")}
	start(t, cfg)
	for _, want := range []string{"make inner", "make outer", "outer", "inner", "handler"} {
		if got := receive(t, want, calls); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
