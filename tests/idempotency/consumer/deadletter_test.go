package consumer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/idempotency/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/hook"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
)

// silent returns a client of a broker taking records without an answer: the
// client does not know whether they are written, and keeps them. asked is
// signalled when the broker has some.
func silent(t *testing.T) (client *kgo.Client, asked chan struct{}) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders.dead"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	asked = make(chan struct{}, 1)
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		select {
		case asked <- struct{}{}:
		default:
		}
		return nil, errors.New("the connection is cut"), true
	})
	client, err = kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client, asked
}

// A consumer can be stopped while the dead letters are nowhere to go.
func TestStoppingCutsOffADeadLetter(t *testing.T) {
	letters, asked := silent(t)
	bury, err := consumer.DeadLetterTopic(letters, "orders.dead")
	if err != nil {
		t.Fatal(err)
	}
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 1, nil)
	cfg := config(b, newLedger(), func(context.Context, *kgo.Record) error { return nil })
	cfg.Once.Runner = burying{cfg.Once.Runner, bury}
	cfg.DrainTimeout = 10 * time.Millisecond
	m := start(t, cfg)
	produce(t, b, &kgo.Record{Topic: "orders", Value: []byte("no id")})
	receive(t, "a dead letter", asked)
	m.stop(t)
}

// Nor does a worker wait for ever, without a word.
func TestADeadLetterThatNobodyTakesFails(t *testing.T) {
	letters, _ := silent(t)
	bury, err := consumer.DeadLetterTopic(letters, "orders.dead")
	if err != nil {
		t.Fatal(err)
	}
	once := consumer.Once{Scope: group, Runner: burying{newLedger(), bury}}
	process, err := once.Wrap(func(context.Context, *kgo.Record) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	result, err := process(hook.WithInterval(t.Context(), 50*time.Millisecond), &kgo.Record{Topic: "orders"})
	if result.Disposition != idempotency.Retry || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v", result, err)
	}
}

// buryTo returns the Process for a record without an id: the dead letter goes to
// the topic orders.dead.
func buryTo(t *testing.T, client *kgo.Client) consumer.Process {
	t.Helper()
	bury, err := consumer.DeadLetterTopic(client, "orders.dead")
	if err != nil {
		t.Fatal(err)
	}
	process, err := consumer.Once{Scope: group, Runner: burying{newLedger(), bury}}.Wrap(func(context.Context, *kgo.Record) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return process
}

// The connector writes records of up to 1 MiB; the client's default limit is
// lower.
func TestALargeDeadLetterPassesTheClientsLimit(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders.dead", 1, map[string]string{"max.message.bytes": "1060000"})
	large := &kgo.Record{Topic: "orders", Value: make([]byte, 1<<20)}
	result, err := buryTo(t, b.Client(t))(t.Context(), large)
	if !result.Done() || err != nil {
		t.Fatalf("%+v, %v", result, err)
	}
	if r := b.Consume(t, []string{"orders.dead"}, kafkatest.Count(1))[0]; len(r.Value) != len(large.Value) {
		t.Errorf("%d bytes are there", len(r.Value))
	}
}

// A refusal by the topic names the setting in the letter's way; once changed, the
// letter goes through.
func TestADeadLetterThatTheTopicRefuses(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders.dead", 1, map[string]string{"max.message.bytes": "2000"})
	process, large := buryTo(t, b.Client(t, kgo.ProducerBatchCompression(kgo.NoCompression()))), &kgo.Record{Topic: "orders", Value: make([]byte, 5000)}
	result, err := process(t.Context(), large)
	if result.Done() || !errors.Is(err, kerr.MessageTooLarge) || !strings.Contains(err.Error(), "max.message.bytes") {
		t.Errorf("%+v, %v", result, err)
	}
	settings := []kadm.AlterConfig{{Name: "max.message.bytes", Value: kadm.StringPtr("10000")}}
	if _, err := kadm.NewClient(b.Client(t)).AlterTopicConfigs(t.Context(), settings, "orders.dead"); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the dead letter", func() bool {
		result, _ := process(t.Context(), large)
		return result.Done()
	})
}

// A compacted topic refuses records without a key.
func TestACompactedDeadLetterTopicIsRefused(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders.dead", 1, map[string]string{"cleanup.policy": "compact"})
	if _, err := consumer.DeadLetterTopic(b.Client(t), "orders.dead"); err == nil || !strings.Contains(err.Error(), "cleanup.policy to delete") {
		t.Error(err)
	}
}

// A dead-letter topic takes dead letters at once after its re-creation.
func TestADeadLetterTopicCreatedAnew(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders.dead", 1, nil)
	process := buryTo(t, b.Client(t, kgo.MetadataMinAge(10*time.Millisecond)))
	lost := &kgo.Record{Topic: "orders", Value: []byte("no id")}
	if result, err := process(t.Context(), lost); !result.Done() || err != nil {
		t.Fatalf("%+v, %v", result, err)
	}
	remove(t, b, "orders.dead")
	b.CreateTopic(t, "orders.dead", 1, nil)
	await.Until(t, "the dead letter", func() bool {
		result, err := process(t.Context(), lost)
		if err != nil {
			t.Log(err)
		}
		return result.Done()
	})
	b.Consume(t, []string{"orders.dead"}, kafkatest.Count(1))
}

// A dead letter refused by the topic is a state in metrics and log. The state
// ends without a restart, also where the topic is created anew.
func TestADeadLetterThatIsRefusedIsTold(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	b.CreateTopic(t, "orders", 1, nil)
	b.CreateTopic(t, "orders.dead", 1, map[string]string{"max.message.bytes": "2000"})
	bury, err := consumer.DeadLetterTopic(b.Client(t, kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MetadataMinAge(10*time.Millisecond)), "orders.dead")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry)
	if err != nil {
		t.Fatal(err)
	}
	handled := make(chan struct{}, 1)
	cfg := config(b, processor(t, func(o *idempotency.Options) { o.DeadLetter, o.Observer = bury, m.Observer() }),
		func(context.Context, *kgo.Record) error { handled <- struct{}{}; return nil })
	lines := keepLog(&cfg)
	start(t, cfg)
	produce(t, b, &kgo.Record{Topic: "orders", Value: make([]byte, 5000)}, record(0, "k", "1"))
	await.Until(t, "the metric", func() bool { return value(t, registry, "idempotency_dead_letter_errors_total") > 1 })
	await.Until(t, "the log", func() bool {
		return lines.count("level=ERROR msg=\"the record's dead letter cannot be written") > 0 && lines.count("max.message.bytes") > 0
	})
	select {
	case <-handled:
		t.Error("the record behind it was handled")
	default:
	}
	remove(t, b, "orders.dead")
	b.CreateTopic(t, "orders.dead", 1, nil)
	receive(t, "the record behind it", handled)
	b.Consume(t, []string{"orders.dead"}, kafkatest.Count(1))
}

// The log has the reason of each record given up.
func TestTheReasonOfADeadLetterIsTold(t *testing.T) {
	once := consumer.Once{Scope: group, Runner: burying{newLedger(), func(context.Context, idempotency.DeadLetter) error { return nil }}}
	process, err := once.Wrap(func(context.Context, *kgo.Record) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	result, err := process(t.Context(), &kgo.Record{Topic: "orders"})
	if !result.Done() || err != nil || !strings.Contains(result.Reason, `no header "id"`) {
		t.Errorf("%+v, %v", result, err)
	}
}
