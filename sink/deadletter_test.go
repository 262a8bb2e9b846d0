package sink

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/must"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

func TestDeadLetterHasTheOriginalAndTheReason(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "orders", "dead"))
	c.refuse(1, "orders", poison, kerr.InvalidRecord)
	k, _ := newKafka(t, c.config())
	evs := events("orders", 10)
	evs[4].Record.Value = poison
	must.OK(t, k.Deliver(deadline(t), evs, k.DeadLetter))
	ascending(t, c.values(t, "orders", 1), 9)
	dead := c.read(t, "dead", 1)[0]
	if len(dead) != 1 {
		t.Fatalf("%d dead letters", len(dead))
	}
	r := dead[0]
	if string(r.Key) != "k4" || !bytes.Equal(r.Value, poison) || r.Timestamp.Equal(commitTime) {
		t.Errorf("got %s=%s at %v", r.Key, r.Value, r.Timestamp)
	}
	var headers []string
	for _, h := range r.Headers {
		headers = append(headers, h.Key+"="+string(h.Value))
	}
	want := []string{
		"id=id-4",
		"cdc-dlq-reason=rejected_by_broker",
		"cdc-dlq-error=the broker refuses the record: " + kerr.InvalidRecord.Error(),
		"cdc-dlq-table=public.outbox",
		"cdc-dlq-id=id-4",
		"cdc-dlq-lsn=1/4",
		"cdc-dlq-seq=4",
		"cdc-dlq-topic=orders",
		"cdc-dlq-timestamp=2026-08-01T12:30:00.123Z",
	}
	if !slices.Equal(headers, want) {
		t.Errorf("headers\n%s\nwant\n%s", strings.Join(headers, "\n"), strings.Join(want, "\n"))
	}
}

func TestDeadLetterOfAnIncompleteEvent(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(3, "dead"))
	k, _ := newKafka(t, c.config())
	bad := &transform.BadEvent{Reason: transform.ReasonNullRoute, Err: errors.New("aggregatetype is NULL")}
	must.OK(t, k.DeadLetter(deadline(t), &transform.Event{Table: "public.outbox"}, bad))
	if n := len(slices.Concat(c.read(t, "dead", 3)...)); n != 1 {
		t.Errorf("%d dead letters", n)
	}
}

func TestDeadLetterMayBeLargerThanAnEvent(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "orders", "dead"))
	cfg := c.config()
	cfg.MaxRecordBytes = 1000
	k, _ := newKafka(t, cfg)
	evs := events("orders", 3)
	evs[1].Record.Value = bytes.Repeat([]byte("x"), 500_000)
	must.OK(t, k.Deliver(deadline(t), evs, k.DeadLetter))
	if dead := c.read(t, "dead", 1)[0]; len(dead) != 1 || len(dead[0].Value) != 500_000 {
		t.Errorf("%d dead letters", len(dead))
	}
}

func TestMode31DeadLetterFailureHalts(t *testing.T) {
	for name, tc := range map[string]struct {
		opts   []kfake.Opt
		fault  *kerr.Error
		value  []byte
		remedy string
	}{
		"topic missing": {value: poison, remedy: "kafka-topics.sh"},
		"refused": {opts: []kfake.Opt{kfake.SeedTopics(1, "dead")}, value: poison,
			fault: kerr.InvalidRecord, remedy: "check what the topic dead accepts"},
		"too large": {opts: []kfake.Opt{kfake.SeedTopics(1, "dead")}, value: bytes.Repeat([]byte("x"), 1<<20+1),
			remedy: "max.message.bytes"},
		"denied": {opts: []kfake.Opt{kfake.SeedTopics(1, "dead")}, value: poison,
			fault: kerr.TopicAuthorizationFailed, remedy: "kafka-acls.sh"},
	} {
		t.Run(name, func(t *testing.T) {
			c := startCluster(t, append(tc.opts, kfake.SeedTopics(1, "orders"))...)
			c.refuse(1, "orders", poison, kerr.InvalidRecord)
			if tc.fault != nil {
				c.Fault(kfake.Fault{Keys: []kmsg.Key{produce}, Topic: "dead", Err: tc.fault, Count: -1})
			}
			k, _ := newKafka(t, c.config())
			evs := events("orders", 10)
			evs[6].Record.Value = tc.value
			err := k.Deliver(deadline(t), evs, k.DeadLetter)
			if failure.ClassOf(err) != failure.Config || !strings.Contains(failure.RemedyOf(err), tc.remedy) {
				t.Fatalf("got %v of class %d, remedy %q", err, failure.ClassOf(err), failure.RemedyOf(err))
			}
			ascending(t, c.values(t, "orders", 1), 6) // nothing after it
		})
	}
}

func TestMode31DeadLettersOutageIsWaitedFor(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "orders", "dead"))
	c.refuse(1, "orders", poison, kerr.InvalidRecord)
	k, _ := newKafka(t, c.config())
	evs := events("orders", 10)
	evs[6].Record.Value = poison
	reject := func(ctx context.Context, ev *transform.Event, bad *transform.BadEvent) error {
		c.Fault(kfake.Fault{Keys: []kmsg.Key{produce}, Topic: "dead", Err: kerr.NotEnoughReplicas, Count: 2})
		return k.DeadLetter(ctx, ev, bad)
	}
	must.OK(t, k.Deliver(deadline(t), evs, reject))
	if n := len(c.read(t, "dead", 1)[0]); n != 1 {
		t.Errorf("%d dead letters", n)
	}
	ascending(t, c.values(t, "orders", 1), 9)
}

func TestDeadLetterTopicIsCreated(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, "orders"))
	cfg := c.config()
	cfg.CreateTopics, cfg.TopicPartitions = true, 1
	k, _ := newKafka(t, cfg)
	bad := &transform.BadEvent{Reason: transform.ReasonNullKey, Err: errors.New("aggregateid is NULL")}
	must.OK(t, k.DeadLetter(deadline(t), event("orders", "", 0, 1), bad))
	if n := len(c.read(t, "dead", 1)[0]); n != 1 {
		t.Errorf("%d dead letters", n)
	}
}
