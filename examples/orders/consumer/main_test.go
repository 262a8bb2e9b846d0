package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const topic = "outbox.event.order"

// cluster returns a broker's address and writes records to the topic.
func cluster(t *testing.T, records ...*kgo.Record) (broker string) {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	broker = fake.ListenAddrs()[0]
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.DefaultProduceTopic(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return broker
}

func record(key, id, value string) *kgo.Record {
	return &kgo.Record{Key: []byte(key), Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}}}
}

func consume(t *testing.T, o options) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out, diag bytes.Buffer
	if err := run(ctx, o, &out, &diag); err != nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatalf("still waiting after\n%s\nerrors: %s", out.String(), diag.String())
	}
	return out.String()
}

func TestRunPrintsWhatArrives(t *testing.T) {
	broker := cluster(t, record("1", "a", `{"n":1}`), record("2", "b", `{"n":2}`), record("1", "c", `{"n":3}`))
	got := consume(t, options{brokers: broker, topic: topic, group: "g", events: 3})
	want := `outbox.event.order[0]@0 key=1 id=a {"n":1}
outbox.event.order[0]@1 key=2 id=b {"n":2}
outbox.event.order[0]@2 key=1 id=c {"n":3}
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A stop commits what was printed, so the next run goes on after it.
func TestRunGoesOnWhereItStopped(t *testing.T) {
	broker := cluster(t, record("1", "a", "{}"))
	o := options{brokers: broker, topic: topic, group: "g", events: 1}
	consume(t, o)

	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.DefaultProduceTopic(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(t.Context(), record("1", "b", "{}")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if got := consume(t, o); !strings.Contains(got, "id=b") || strings.Contains(got, "id=a") {
		t.Errorf("second run printed %q, want b only", got)
	}
}

func TestParse(t *testing.T) {
	env := map[string]string{"ORDERS_BROKERS": "kafka:9092"}
	got, err := parse([]string{"-topic", "t"}, func(key string) string { return env[key] }, io.Discard)
	if want := (options{brokers: "kafka:9092", topic: "t", group: "orders-example"}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}
