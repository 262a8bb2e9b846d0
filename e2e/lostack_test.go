package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// A lagging replica becomes the leader, so brokers lose acknowledged events. With
// exactly once, no sequence number tells: each transaction has a separate epoch.
func TestE2EUncleanElection(t *testing.T) {
	for _, delivery := range []string{"at_least_once", "exactly_once"} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			w, c, topic := behind(t, delivery)
			w.cluster.KillNode(t, 1)
			w.cluster.PauseNode(t, 2, false)
			w.insertOrders(80, 120)
			if code := c.wait(); code != 3 {
				t.Fatalf("exit code %d, want 3", code)
			}
			c.logSays(topic, "partition", "unclean leader election")
		})
	}
}

// behind is a world where broker 2, the only replica beside the leader, broker
// 1, lacks the acknowledged events 40 to 79.
func behind(t *testing.T, delivery string) (w *world, c *connector, topic string) {
	t.Helper()
	w = newWorld(t, options{exactlyOnce: true, brokers: 3, unread: true,
		topicConfig: map[string]string{"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}})
	w.rewriteConfig("delivery: exactly_once", "delivery: "+delivery)
	topic = topicOf("order")
	w.replicateOn(topic, 1, 2)
	c = w.start()
	w.orders(c, topic, 0, 40)
	w.cluster.PauseNode(t, 2, true)
	w.orders(c, topic, 40, 80)
	return w, c, topic
}

// logSays wants the texts in the log.
func (c *connector) logSays(wants ...string) {
	c.t.Helper()
	log := string(must.Get(os.ReadFile(c.log))(c.t))
	for _, want := range wants {
		if !strings.Contains(log, want) {
			c.t.Errorf("the log does not say %q", want)
		}
	}
}

// replicateOn places all partitions of the topic on two brokers; the first
// leads.
func (w *world) replicateOn(topic string, leader, follower int32) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var order kadm.AlterPartitionAssignmentsReq
	var which kadm.TopicsSet
	for p := range int32(partitions) {
		order.Assign(topic, p, []int32{leader, follower})
		which.Add(topic, p)
	}
	ordered := must.Get(w.admin.AlterPartitionAssignments(ctx, order))(w.t)
	must.OK(w.t, ordered.Error())
	await.Until(w.t, "the leaders", func() bool {
		_, _ = w.admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, which)
		topics, err := w.admin.ListTopics(ctx, topic)
		placed := err == nil && len(topics[topic].Partitions) == partitions
		for _, p := range topics[topic].Partitions {
			placed = placed && p.Leader == leader && len(p.Replicas) == 2 && len(p.ISR) == 2
		}
		return placed
	})
}

// orders commits events with these numbers, and waits until all up to the last are in
// the topic.
func (w *world) orders(c *connector, topic string, from, to int) {
	w.t.Helper()
	w.insertOrders(from, to)
	w.cluster.Consume(w.t, []string{topic}, kafkatest.Count(to))
	c.running()
}

func (w *world) insertOrders(from, to int) {
	w.t.Helper()
	for n := from; n < to; n++ {
		w.exec(fmt.Sprintf(`INSERT INTO outbox VALUES (gen_random_uuid(), 'order', 'key-%d', 'Placed', '%d')`, n%7, n))
	}
}

// The same while no connector is running: the checkpoint has the acknowledged ends.
func TestE2EBrokersLoseWhileNoConnectorRuns(t *testing.T) {
	for _, delivery := range []string{"at_least_once", "exactly_once"} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			w, c, topic := behind(t, delivery)
			var end pg.LSN
			must.OK(t, w.sql.QueryRow(t.Context(), `SELECT pg_current_wal_lsn()`).Scan(&end))
			await.Until(t, "all to be confirmed", func() bool { s, ok := w.look(); return ok && s.confirmed >= end })
			c.stop()
			w.cluster.KillNode(t, 1)
			w.cluster.PauseNode(t, 2, false)
			await.Until(t, "the other leader", func() bool {
				topics, err := w.admin.ListTopics(t.Context(), topic)
				led := err == nil && len(topics[topic].Partitions) == partitions
				for _, p := range topics[topic].Partitions {
					led = led && p.Leader == 2
				}
				return led
			})

			c = startConnector(t, w.config)
			if code := c.wait(); code != 3 {
				t.Fatalf("lost: exit code %d, want 3", code)
			}
			c.logSays("while no connector was running", topic, "partition", "unclean leader election")
			w.says("brokers have lost", "check")
			w.says("brokers have lost", "setup", "--accept-gap", "--yes")
			c = w.start()
			w.insertOrders(80, 120)
			seen := map[string]int{}
			w.broker.Consume(t, []string{topic}, func(all []*kgo.Record) bool {
				clear(seen)
				for _, r := range all {
					seen[string(r.Value)]++
				}
				for n := 80; n < 120; n++ {
					if seen[strconv.Itoa(n)] == 0 {
						return false
					}
				}
				return true
			})
			for event, times := range seen {
				if times > 1 {
					t.Errorf("event %s came %d times", event, times)
				}
			}
			c.stop()
		})
	}
}

// says runs a command until the output has the text. The front of the killed
// broker may refuse the command first.
func (w *world) says(want string, args ...string) {
	w.t.Helper()
	await.Until(w.t, "cdc-outbox "+strings.Join(args, " "), func() bool {
		cmd := exec.CommandContext(w.t.Context(), binary, append(args, "-c", w.config)...)
		cmd.Env = environment(w.t)
		said, _ := cmd.CombinedOutput()
		return strings.Contains(string(said), want)
	})
}
