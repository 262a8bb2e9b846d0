package sink

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
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
		"too large, however short": {opts: []kfake.Opt{kfake.SeedTopics(1, "dead")}, value: bytes.Repeat([]byte("x"), 1<<20+1),
			fault: kerr.MessageTooLarge, remedy: "max.message.bytes=104857600"},
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
			ascending(t, c.values(t, "orders", 1), 6) // nothing behind
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

// A topic may take an event, but not the larger dead letter: an event refused for
// its size never fits.
func TestMode71DeadLetterIsCutToWhatItsTopicTakes(t *testing.T) {
	large := func(n int) []byte { return bytes.Repeat([]byte("0123456789abcdef"), n/16) }
	for name, tc := range map[string]struct {
		limit string
		key   []byte
		value []byte
		cut   string
	}{
		"the event and its headers do not fit": {"1048588", []byte("k"), large(1<<20 - 64), "value=1048512"},
		"too large by itself":                  {"1048588", []byte("k"), large(5 << 20), "value=5242880"},
		"topic of small records":               {"20000", []byte("k"), large(5 << 20), "value=5242880"},
		"key and value":                        {"20000", large(1 << 20), large(2 << 20), "value=2097152, key=1048576"},
	} {
		cut := func(t *testing.T, c *cluster) {
			t.Helper()
			var dead []*kgo.Record
			cl := c.client(t, kgo.ConsumeTopics("dead"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
			for ctx := deadline(t); len(dead) < 2 && ctx.Err() == nil; {
				dead = append(dead, cl.PollFetches(ctx).Records()...)
			}
			if len(dead) != 2 {
				t.Fatalf("%d dead letters", len(dead))
			}
			for _, r := range dead {
				if !bytes.HasPrefix(tc.value, r.Value) || len(r.Value) < 5000 || !bytes.HasPrefix(tc.key, r.Key) {
					t.Errorf("%d bytes of the value, %d of the key", len(r.Value), len(r.Key))
				}
				last := r.Headers[len(r.Headers)-1]
				if last.Key != headerCut || string(last.Value) != tc.cut {
					t.Errorf("last header %s=%s, want %s", last.Key, last.Value, tc.cut)
				}
				if reason := r.Headers[1]; reason.Key != headerReason || string(reason.Value) != string(transform.ReasonRecordTooLarge) {
					t.Errorf("header %s=%s", reason.Key, reason.Value)
				}
			}
		}
		start := func(t *testing.T) (*cluster, []*transform.Event) {
			t.Helper()
			c := startCluster(t, kfake.SeedTopics(1, "t", marks))
			must.Get(c.admin(t).CreateTopic(t.Context(), 1, 1, map[string]*string{MaxMessageBytes: &tc.limit}, "dead"))(t)
			evs := events("t", 10)
			for _, i := range []int{3, 7} {
				evs[i].Record.Key, evs[i].Record.Value = tc.key, tc.value
			}
			return c, evs
		}
		options := func(c *cluster) Options {
			cfg := c.config()
			cfg.Compression, cfg.MaxRecordBytes = "none", 1<<20-128
			return cfg
		}
		t.Run(name, func(t *testing.T) {
			c, evs := start(t)
			k, logs := newKafka(t, options(c))
			must.OK(t, k.Deliver(deadline(t), evs, k.DeadLetter))
			ascending(t, c.values(t, "t", 1), 8)
			cut(t, c)
			said := logs.FilterMessageSnippet("it is cut").All()
			if len(said) != 1 || !strings.Contains(said[0].ContextMap()["remedy"].(string), "max.message.bytes=104857600") {
				t.Errorf("logged %v", said)
			}
		})
		t.Run(name+", exactly once", func(t *testing.T) {
			c, evs := start(t)
			x := must.Get(NewTransactions(options(c), "tx", WithDeadLetterTopic("dead")))(t)
			t.Cleanup(x.Close)
			must.OK(t, x.Claim(deadline(t)))
			entries := entriesOf(evs)
			refused := must.Get(x.Transact(deadline(t), entries, mark("1")))(t)
			for _, r := range refused {
				entries[r.Index].Bad = r.Bad
			}
			if again := must.Get(x.Transact(deadline(t), entries, mark("1")))(t); len(refused) != 2 || len(again) != 0 {
				t.Fatalf("refused %v, then %v", refused, again)
			}
			cut(t, c)
		})
	}
}

// An operator who makes the topic take more need not restart anything.
func TestDeadLetterIsTriedWholeAgain(t *testing.T) {
	now := time.Now()
	k := &Kafka{deadLetter: "dead", letters: letterLimit{100, now.Add(-time.Second)}}
	bad := &transform.BadEvent{Reason: transform.ReasonRecordTooLarge, Err: errors.New("too large")}
	ev := event("t", strings.Repeat("k", 500), 0, 1)
	if whole := must.Get(k.letter(t.Context(), ev, bad))(t); len(whole.Record.Key) != 500 {
		t.Errorf("%d bytes of the key", len(whole.Record.Key))
	}
	k.letters.until = now.Add(limitHolds)
	if cut := must.Get(k.letter(t.Context(), ev, bad))(t); lengths(&cut.Record) > 100+len("key=500") {
		t.Errorf("%d bytes", lengths(&cut.Record))
	}
	if len(ev.Record.Key) != 500 || len(ev.Record.Headers) != 1 {
		t.Error("the event has changed")
	}
}

func TestDeadLetterTopicIsCreatedLarge(t *testing.T) {
	bad := &transform.BadEvent{Reason: transform.ReasonRecordTooLarge, Err: errors.New("too large")}
	large := event("t", "k", 0, 1)
	large.Record.Value = bytes.Repeat([]byte("x"), 5<<20)
	for name, tc := range map[string]struct {
		config map[string]string
		refuse *kerr.Error
		want   string
		length int
	}{
		"as large as can be sent":     {want: "104857600", length: 5 << 20},
		"as configured":               {config: map[string]string{MaxMessageBytes: "6000000"}, want: "6000000", length: 5 << 20},
		"where the cluster bounds it": {refuse: kerr.PolicyViolation, want: "1048588", length: 1 << 19},
	} {
		t.Run(name, func(t *testing.T) {
			c := startCluster(t)
			cfg := c.config()
			cfg.CreateTopics, cfg.TopicPartitions, cfg.TopicConfig, cfg.Compression = true, 1, tc.config, "none"
			if tc.refuse != nil {
				c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: tc.refuse, Count: 1})
			}
			k, _ := newKafka(t, cfg)
			must.OK(t, k.DeadLetter(deadline(t), large, bad))
			if dead := c.read(t, "dead", 1)[0]; len(dead) != 1 || len(dead[0].Value) < tc.length {
				t.Errorf("%d dead letters", len(dead))
			}
			configs := must.Get(c.admin(t).DescribeTopicConfigs(t.Context(), "dead"))(t)
			for _, s := range configs[0].Configs {
				if s.Key == MaxMessageBytes && s.MaybeValue() != tc.want {
					t.Errorf("%s is %s, want %s", s.Key, s.MaybeValue(), tc.want)
				}
			}
		})
	}
}
