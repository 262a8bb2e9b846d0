package consumer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/consumer"
	"github.com/cdc-outbox/cdc-outbox/internal/base/hook"
	"github.com/cdc-outbox/cdc-outbox/internal/kafkatest"
)

// silent returns a client of a broker that takes records and does not answer:
// the client does not know then whether they are written, and keeps them. asked
// is signalled when the broker has some.
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

// A consumer can be stopped while its dead letters are nowhere to go.
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

// Who reads the log is told why a record is given up.
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
