package sink

import (
	"context"
	"net"
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

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// endsMarked are the ends in the last mark of the topic of marks.
func endsMarked(t *testing.T, client *kgo.Client) (ends checkpoint.Ends) {
	t.Helper()
	log := must.Get(kafkalog.Open(deadline(t), client, marks, 0))(t)[0]
	_, end := log.Bounds()
	for _, r := range must.Get(kafkalog.Scan(deadline(t), log, 0, end, func(*kgo.Record) bool { return true }))(t) {
		for _, h := range r.Headers {
			if h.Key == checkpoint.EndsHeader {
				ends = must.Get(checkpoint.ParseEnds(h.Value))(t)
			}
		}
	}
	return ends
}

// The ends in a mark are exactly the ends of the records, with the mark's transaction:
// neither too far, as a false loss would follow, nor too near. Behind them come the markers
// of the commit.
func TestMarkHasTheEndsOfAllPartitions(t *testing.T) {
	c, x := startTransactions(t, 3)
	for _, partitions := range [][]int32{{0, 0, 1}, {1}, {2, 1}, {}, {0}} {
		var entries []Entry
		for i, p := range partitions {
			entries = append(entries, Entry{Event: event("t", "a", p, i)})
		}
		must.Get(x.Transact(deadline(t), entries, mark("m")))(t)
		have, now := endsMarked(t, c.client(t))["t"], must.Get(c.admin(t).ListEndOffsets(deadline(t), "t"))(t)
		for p, had := range have.To {
			if listed, _ := now.Lookup("t", int32(p)); had > 0 && listed.Offset != had+marker || had == 0 && listed.Offset != 0 {
				t.Errorf("after %v: partition %d ends at %d with its marker, the mark says %d", partitions, p, listed.Offset, had)
			}
		}
		if id := parseTopicID(have.ID); id != topicID(c.TopicInfo("t").TopicID) {
			t.Errorf("the topic's id is %q", have.ID)
		}
	}
}

// started runs test with sinks of each kind after a start, with the checkpoint's ends.
func started(t *testing.T, c *cluster, ends checkpoint.Ends, test func(t *testing.T, compare func() error, write func([]*transform.Event) error)) {
	t.Helper()
	t.Run("at least once", func(t *testing.T) {
		k, _ := newKafka(t, c.config())
		test(t, func() error { return k.Compare(deadline(t), ends) },
			func(evs []*transform.Event) error { return k.Deliver(deadline(t), evs, noReject(t)) })
	})
	t.Run("exactly once", func(t *testing.T) {
		x := must.Get(NewTransactions(c.config(), "tx"))(t)
		t.Cleanup(x.Close)
		must.OK(t, x.Claim(deadline(t)))
		test(t, func() error { return x.Compare(deadline(t), ends) }, func(evs []*transform.Event) error {
			_, err := x.Transact(deadline(t), entriesOf(evs), mark("m"))
			return err
		})
	})
}

func newStarted(t *testing.T) (*cluster, checkpoint.Ends) {
	t.Helper()
	c := startCluster(t, kfake.SeedTopics(2, "orders"), kfake.SeedTopics(1, marks))
	k, _ := newKafka(t, c.config())
	deliver(t, k, events("orders", 20))
	return c, k.Ends()
}

// The log of a partition is shorter than in the checkpoint.
func TestStartNoticesWhatBrokersLost(t *testing.T) {
	c, ends := newStarted(t)
	had := ends["orders"].To[1]
	ends["orders"].To[1] += 5
	started(t, c, ends, func(t *testing.T, compare func() error, _ func([]*transform.Event) error) {
		err := compare()
		if failure.ClassOf(err) != failure.Loss {
			t.Fatalf("%v of class %d, want a loss", err, failure.ClassOf(err))
		}
		for _, want := range []string{`"orders", partition 1`, "up to 5 events", "unclean leader election", "disk was put back"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not say %q: %v", want, err)
			}
		}
		if r := failure.RemedyOf(err); !strings.Contains(r, "--partition 1") || !strings.Contains(r, "--accept-gap") {
			t.Errorf("remedy %q", r)
		}
	})
	compared := CompareEnds(deadline(t), c.client(t), ends)
	if now := compared.Now()["orders"].To[1]; now != had || len(compared.Lost) != 1 {
		t.Errorf("to go on from %d, lost %v", now, compared.Lost)
	}
}

// Neither retention nor DeleteRecords, nor a topic deleted or made anew, nor the records of
// others are a loss.
func TestStartIsNotAlarmedByOrders(t *testing.T) {
	for name, order := range map[string]func(*testing.T, *cluster){
		"nothing": func(*testing.T, *cluster) {},
		"records deleted": func(t *testing.T, c *cluster) {
			var start kadm.Offsets
			for p := range int32(2) {
				start.AddOffset("orders", p, -1, -1)
			}
			must.Get(c.admin(t).DeleteRecords(deadline(t), start))(t)
		},
		"topic made anew": func(t *testing.T, c *cluster) { c.remake(t, "orders", 2) },
		"topic deleted": func(t *testing.T, c *cluster) {
			must.Get(c.admin(t).DeleteTopic(deadline(t), "orders"))(t)
		},
		"others wrote": func(t *testing.T, c *cluster) {
			must.OK(t, c.client(t).ProduceSync(deadline(t), &kgo.Record{Topic: "orders"}).FirstErr())
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, ends := newStarted(t)
			order(t, c)
			if name == "topic deleted" {
				ends["none"] = checkpoint.TopicEnds{To: []int64{3}}
			}
			started(t, c, ends, func(t *testing.T, compare func() error, write func([]*transform.Event) error) {
				must.OK(t, compare())
				if name == "topic deleted" {
					return
				}
				must.OK(t, write(events("orders", 8)))
			})
		})
	}
}

// A leader away at the start does not hold the start up. The loss shows at the
// next write.
func TestWhatCannotBeComparedShowsWhenItIsWrittenTo(t *testing.T) {
	c, ends := newStarted(t)
	for p := range ends["orders"].To {
		ends["orders"].To[p] += 500
	}
	patience := comparePatience
	comparePatience = 300 * time.Millisecond
	t.Cleanup(func() { comparePatience = patience })
	started(t, c, ends, func(t *testing.T, compare func() error, write func([]*transform.Event) error) {
		var back atomic.Bool
		c.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			if back.Load() {
				return nil, nil, false
			}
			resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
			for _, topic := range req.(*kmsg.ListOffsetsRequest).Topics {
				answer := kmsg.ListOffsetsResponseTopic{Topic: topic.Topic}
				for _, p := range topic.Partitions {
					answer.Partitions = append(answer.Partitions, kmsg.ListOffsetsResponseTopicPartition{
						Partition: p.Partition, ErrorCode: kerr.OffsetNotAvailable.Code, Offset: -1, LeaderEpoch: -1,
					})
				}
				resp.Topics = append(resp.Topics, answer)
			}
			return resp, nil, true
		})
		must.OK(t, compare()) // gives up
		back.Store(true)
		if err := write(events("orders", 8)); failure.ClassOf(err) != failure.Loss {
			t.Errorf("%v of class %d, want a loss", err, failure.ClassOf(err))
		}
	})
}

// A starting broker, or a proxy before a broker that is away, hangs up. The comparison goes
// on.
func TestABrokerThatHangsUpIsAskedAgain(t *testing.T) {
	c, ends := newStarted(t)
	for p := range ends["orders"].To {
		ends["orders"].To[p] += 500
	}
	away := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var hanging sync.WaitGroup
	hanging.Go(func() {
		if conn, err := away.Accept(); err == nil {
			_ = conn.Close()
		}
	})
	t.Cleanup(func() { _ = away.Close(); hanging.Wait() })
	var dialed atomic.Bool
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		if !dialed.Swap(true) {
			address = away.Addr().String()
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	})))(t)
	t.Cleanup(client.Close)
	if is := CompareEnds(deadline(t), client, ends); is.Untold != nil || len(is.Lost) != len(ends["orders"].To) {
		t.Errorf("%d partitions lost something, not told: %v", len(is.Lost), is.Untold)
	}
}

func TestEndsAreBounded(t *testing.T) {
	k, _ := newKafka(t, startCluster(t).config())
	for i, topic := range []string{"first", "second", "third"} {
		k.acked[topic] = &acked{used: uint64(i), ends: make([]end, mostEnds/2)}
	}
	ends := k.Ends()
	if _, oldest := ends["first"]; len(ends) != 2 || oldest {
		t.Errorf("%d topics, the oldest among them: %t", len(ends), oldest)
	}
	if id := (topicID{1, 2, 3}); parseTopicID(id.text()) != id || parseTopicID("?") != (topicID{}) {
		t.Error("an id is not read as it was written")
	}
}
