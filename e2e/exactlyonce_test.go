package e2e

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// TestE2EExactlyOnce disturbs every part at random moments under load, and
// wants each event once, in order, for consumers of committed records.
func TestE2EExactlyOnce(t *testing.T) {
	t.Parallel()
	for name, disturb := range disturbances {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exactlyOnce(t, disturb)
		})
	}
}

// disturbances happen to a connector. Each returns the connector running
// afterwards.
var disturbances = map[string]func(w *world, c *connector, random *rand.Rand) *connector{
	"killed": func(w *world, c *connector, _ *rand.Rand) *connector {
		c.kill()
		return startConnector(w.t, w.config)
	},
	"answer_to_EndTxn_lost": func(w *world, c *connector, _ *rand.Rand) *connector {
		w.lose(1, 0)
		return c
	},
	"no_answer_to_EndTxn": func(w *world, c *connector, random *rand.Rand) *connector {
		w.lose(1+random.Int32N(4), random.Int32N(4)) // the client asks again
		if random.IntN(2) == 0 {
			c.kill()
			return startConnector(w.t, w.config)
		}
		return c
	},
	"EndTxn_lost_until_the_timeout": func(w *world, c *connector, _ *rand.Rand) *connector {
		w.endTxn.requests.Store(math.MaxInt32)
		c.awaitMore(beganAnew)
		w.endTxn.requests.Store(0)
		return c
	},
	"answers_to_EndTxn_lost_until_the_client_gives_up": func(w *world, c *connector, _ *rand.Rand) *connector {
		w.endTxn.answers.Store(math.MaxInt32)
		c.awaitMore(beganAnew)
		w.endTxn.answers.Store(0)
		return c
	},
	"walsender_killed": func(w *world, c *connector, _ *rand.Rand) *connector {
		w.exec("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '" + w.slot + "' AND active")
		return c
	},
	"broker_killed": func(w *world, c *connector, _ *rand.Rand) *connector {
		w.broker.Kill(w.t)
		w.broker.Resume(w.t)
		return c
	},
	// No markers are pending then: the broker has completed the transaction before.
	"broker_killed_before_EndTxn": func(w *world, c *connector, _ *rand.Rand) *connector {
		goOn := w.holdEnd(c)
		w.broker.Kill(w.t)
		goOn()
		w.broker.Resume(w.t)
		return c
	},
	"spare_takes_over": func(w *world, c *connector, _ *rand.Rand) *connector {
		spare := startConnector(w.t, w.config)
		w.takeOver(spare, c)
		c.awaitLog("standing by")
		c.kill()
		return spare
	},
}

// takeOver has the spare take over from the connector, paused meanwhile.
func (w *world) takeOver(spare, c *connector) {
	w.t.Helper()
	c.signal(syscall.SIGSTOP)
	before, _ := w.look()
	await.Until(w.t, "the spare's stream", func() bool {
		spare.running()
		if now, ok := w.look(); ok && now.pid != 0 && now.pid == before.pid {
			w.exec(fmt.Sprintf("SELECT pg_terminate_backend(%d)", now.pid))
		}
		log, _ := os.ReadFile(spare.log)
		return strings.Contains(string(log), w.started())
	})
	c.signal(syscall.SIGCONT)
}

// checkpoints is the topic of the connector alone.
func (w *world) checkpoints() string {
	return store.Topic("cdc-outbox.checkpoints", strings.TrimPrefix(w.transactionalID(), "cdc-outbox/"))
}

// beganAnew is in the log of a connector in doubt about a transaction.
const beganAnew = "dropped what was in flight"

// awaitMore returns once the text is in the log once more than now, or when both
// broker and client have lost their patience.
func (c *connector) awaitMore(text string) {
	c.t.Helper()
	count := func() int {
		log, _ := os.ReadFile(c.log)
		return strings.Count(string(log), text)
	}
	before, began := count(), time.Now()
	await.Until(c.t, fmt.Sprintf("one more %q in the log", text), func() bool {
		c.running()
		return count() > before || time.Since(began) > 20*time.Second
	})
}

// lose loses so many answers to EndTxn, and requests, and waits until they are.
func (w *world) lose(answers, requests int32) {
	before := w.endTxn.lost.Load()
	w.endTxn.answers.Store(answers)
	w.endTxn.requests.Store(requests)
	await.Until(w.t, "lost ends of transactions", func() bool { return w.endTxn.lost.Load() > before })
}

// holdEnd holds back the requests to end transactions, and returns after the
// first.
func (w *world) holdEnd(c *connector) (goOn func()) {
	w.t.Helper()
	goOn, before := w.endTxn.hold(), w.endTxn.held.Load()
	await.Until(w.t, "an EndTxn", func() bool { c.running(); return w.endTxn.held.Load() > before })
	return goOn
}

func exactlyOnce(t *testing.T, disturb func(*world, *connector, *rand.Rand) *connector) {
	times := 6
	if testing.Short() {
		times = 2
	}
	w := newWorld(t, options{exactlyOnce: true})
	s := seed(t)
	random := rand.New(rand.NewPCG(s, 200))
	c := w.start()
	load := w.write(s, 5*time.Millisecond, 0)
	times = number(t, killsEnv, times)
	if strings.Contains(t.Name(), "until") { // as slow as brokers and client are patient
		times = min(times, 2)
	}
	for range times {
		load.await(20 + random.IntN(600))
		c = disturb(w, c, random)
	}
	if strings.HasSuffix(t.Name(), "/broker_killed") && w.broker.SkippedMarkers(t) {
		t.Skip("Apache Kafka has completed a transaction without its markers (failure mode 183)")
	}
	h, report := w.finish(load, c)
	w.wantNoneAgain(report, "to consumers that read what is committed")
	w.wantDrained(h)
	w.verifyAll(h)
}

// allRead returns once the consumer of uncommitted records has read everything.
func (w *world) allRead() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := w.all.AwaitEnds(ctx, w.ends()); err != nil {
		w.t.Fatalf("read the topics: %v", err)
	}
}

// verifyAll judges the records of a consumer with read_uncommitted: repetitions
// are no fault.
func (w *world) verifyAll(h checker.History) {
	w.t.Helper()
	h.Records = w.all.Records()
	report := checker.Verify(h)
	w.t.Logf("read uncommitted: %s", report)
	if err := report.Err(); err != nil {
		w.t.Errorf("read uncommitted: %v", err)
	}
}

// A transaction of the database spans several Kafka transactions, and a
// connector killed in the middle goes on in the middle.
func TestE2EExactlyOnceWithinALargeTransaction(t *testing.T) {
	w := newWorld(t, options{exactlyOnce: true})
	c := w.start()
	const events = 100_000
	w.exec(fmt.Sprintf(`INSERT INTO outbox SELECT gen_random_uuid(), 'order', n %% 7, 'Placed', n || repeat('.', 100) FROM generate_series(1, %d) n`, events))
	random := rand.New(rand.NewPCG(seed(t), 300))
	for _, part := range []int{1, 3, 5} {
		from := part*events/7 + random.IntN(events/7)
		await.Until(t, "a part of the transaction", func() bool { c.running(); return len(w.reader.Records()) >= from })
		if all := len(w.reader.Records()); all < events {
			c.kill()
			c = startConnector(t, w.config)
		}
	}
	await.Until(t, "the whole transaction", func() bool { c.running(); return len(w.reader.Records()) >= events })
	c.stop()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must.OK(t, w.reader.AwaitEnds(ctx, w.ends()))
	w.settle()
	last, records := map[string]int{}, w.reader.Records()
	for _, r := range records {
		n := must.Get(strconv.Atoi(strings.TrimRight(r.Value, ".")))(t)
		if want := last[r.Key] + 7; last[r.Key] > 0 && n != want {
			t.Fatalf("after %d of key %s comes %d, want %d", last[r.Key], r.Key, n, want)
		}
		last[r.Key] = n
	}
	if len(records) != events {
		t.Errorf("%d records, want %d", len(records), events)
	}
}

// A refused record aborts its transaction. The connector writes the transaction
// again, with a dead letter.
func TestE2EExactlyOnceWithRefusedEvents(t *testing.T) {
	w := newWorld(t, options{exactlyOnce: true}.refusing(50_000))
	s := seed(t)
	random := rand.New(rand.NewPCG(s, 400))
	c := w.start()
	load := w.write(s, 8*time.Millisecond, 50_000)
	for range 3 {
		load.await(100 + random.IntN(300))
		c.kill()
		c = startConnector(t, w.config)
	}
	_, report := w.finish(load, c)
	w.wantNoneAgain(report, "to consumers that read what is committed")
	if letters := w.ends()[deadLetter][0]; letters == 0 {
		t.Error("no payload was over the limit")
	}
}

// While a transaction of somebody else is open in the checkpoint topic, the
// connector cannot read its last checkpoint, and must not use an older
// checkpoint. An open transaction in the topic of another pipeline keeps nobody
// waiting.
func TestE2EExactlyOnceBesideAnotherTransaction(t *testing.T) {
	w := newWorld(t, options{exactlyOnce: true})
	const others = "cdc-outbox.checkpoints.another"
	w.broker.CreateTopic(t, others, 1, map[string]string{"cleanup.policy": "compact"})
	c := w.start()
	load := w.write(seed(t), 5*time.Millisecond, 0)
	load.await(100)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	begin := func(topic string) *kgo.Client {
		other := w.broker.Client(t, kgo.TransactionalID("other in "+topic), kgo.TransactionTimeout(5*time.Minute), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		must.OK(t, other.BeginTransaction())
		must.OK(t, other.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: []byte("other"), Value: []byte("{}")}).FirstErr())
		return other
	}
	begin(others) // for the rest of the test
	load.await(300)
	c.kill()
	c = w.start()
	must.OK(t, w.reader.AwaitEvents(ctx, w.committed()))

	other := begin(w.checkpoints())
	load.await(300)
	c.kill()
	c = startConnector(t, w.config)
	c.awaitLog("a transaction is open in it")
	must.OK(t, other.EndTransaction(ctx, kgo.TryCommit))
	load.await(100)
	_, report := w.finish(load, c)
	w.wantNoneAgain(report, "after a start beside another transaction")
}

// A connector goes from at least once to exactly once and back without a gap,
// and a lost checkpoint is not taken for a first start.
func TestE2EExactlyOnceTakesTheCheckpointOver(t *testing.T) {
	w := newWorld(t, options{exactlyOnce: true})
	text := string(must.Get(os.ReadFile(w.config))(t))
	deliver := func(how string) *connector {
		must.OK(t, os.WriteFile(w.config, []byte(strings.Replace(text, "delivery: exactly_once", "delivery: "+how, 1)), 0o600))
		return w.start()
	}
	c := deliver("at_least_once")
	load := w.write(seed(t), 5*time.Millisecond, 0)
	late := false
	for _, how := range []string{"at_least_once", "exactly_once", "at_least_once", "exactly_once"} {
		load.await(200)
		c.stop()
		_, said := c.lastLog("sent again")
		late = late || said
		load.await(200) // nobody is there
		c = deliver(how)
	}
	load.await(200)
	_, report := w.finish(load, c)
	if late {
		t.Log("an instance could not end its work in the time that it has for that, and said so")
	} else {
		w.wantNoneAgain(report, "though each instance was stopped in order")
	}

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	refused := func(config, why string) {
		must.OK(t, os.WriteFile(w.config, []byte(config), 0o600))
		c := startConnector(t, w.config)
		if code := c.wait(); code != 2 || !strings.Contains(c.lastLines(30), "but there is no checkpoint") {
			t.Errorf("exit code %d %s, want 2", code, why)
		}
	}
	refused(text+"checkpoint:\n  key: another\n", "under another key")
	must.Get(w.admin.DeleteTopic(ctx, w.checkpoints()))(t)
	refused(text, "after the checkpoint's topic was deleted")
}

// Transactions of version 1 do not change the producer's epoch. The cluster is
// upgraded while the connector runs.
func TestE2EExactlyOnceThroughAnUpgradeOfTransactions(t *testing.T) {
	w := newWorld(t, options{exactlyOnce: true}.refusing(50_000))
	w.broker.SetFeature(t, "transaction.version", 1)
	s := seed(t)
	random := rand.New(rand.NewPCG(s, 600))
	c := w.start()
	load := w.write(s, 8*time.Millisecond, 50_000)
	disturb := func() {
		load.await(100 + random.IntN(200))
		for _, name := range []string{"killed", "walsender_killed", "answer_to_EndTxn_lost", "spare_takes_over"} {
			load.await(20 + random.IntN(200))
			c = disturbances[name](w, c, random)
		}
		load.await(100)
	}
	disturb()
	w.broker.Consume(t, []string{deadLetter}, kafkatest.Count(1)) // the disturbances may have delayed all of them
	before := w.ends()[deadLetter][0]
	w.broker.SetFeature(t, "transaction.version", 2)
	disturb()
	_, report := w.finish(load, c)
	w.wantNoneAgain(report, "to consumers that read what is committed")
	if after := w.ends()[deadLetter][0]; after == before {
		t.Error("no dead letters after the upgrade: too few payloads were over the limit")
	}
}

// The client loses its connection with a request to end a transaction on the
// way. The request arrives while another transaction is open, and must not end
// the latter. Only the request's epoch tells, and transactions of version 1 keep
// the epoch.
func TestE2EExactlyOnceWithALateEndTxn(t *testing.T) {
	for _, version := range []int16{1, 2} {
		t.Run(fmt.Sprintf("transactions_%d", version), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{exactlyOnce: true})
			w.broker.SetFeature(t, "transaction.version", version)
			c := w.start()
			load := w.write(seed(t), 5*time.Millisecond, 0)
			load.await(100)
			w.endTxn.delayed.Store(1)
			await.Until(t, "a request that is late", func() bool { c.running(); return w.endTxn.keeps() > 0 })
			read := len(w.reader.Records())
			await.Until(t, "a later transaction", func() bool { c.running(); return len(w.reader.Records()) > read })

			goOn := w.holdEnd(c)
			for _, answer := range w.endTxn.deliver(patience) {
				if answer.ErrorCode == 0 {
					t.Error("the late request ended a transaction that is not its own")
				}
			}
			goOn()
			load.await(100)
			h, report := w.finish(load, c)
			w.wantNoneAgain(report, "though a request was late")
			w.verifyAll(h)
		})
	}
}

// A coordinator is killed before other brokers have its decision, and started
// again before the controller has noticed. It has a part of the partitions write
// the end of a transaction. Its successor does not know of that end, and aborts
// the transaction in the other partitions. Whatever the part, each event comes
// once.
func TestE2EExactlyOnceWithHalfOfATransactionEnded(t *testing.T) {
	t.Parallel()
	claimed := func(*world) {}
	mark := func(w *world, topic string) bool { return topic == w.checkpoints() }
	for name, c := range map[string]struct {
		committed func(w *world, topic string) bool
		aborted   func(*world) // aborts the rest; claimed leaves the rest to the next claim
	}{
		"the_checkpoint":            {mark, claimed},
		"all_but_the_checkpoint":    {func(w *world, topic string) bool { return !mark(w, topic) }, claimed},
		"nothing":                   {func(*world, string) bool { return false }, claimed},
		"the_rest_was_left_open":    {mark, func(w *world) { w.broker.AwaitEnd(w.t, w.transactionalID()) }},
		"an_operator_ends_the_rest": {mark, func(w *world) { w.run("txn", "abort", "--yes") }},
	} {
		for _, version := range []int16{1, 2} {
			t.Run(fmt.Sprintf("%s_with_version_%d", name, version), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, options{exactlyOnce: true})
				w.broker.SetFeature(t, "transaction.version", version)
				con := w.start()
				load := w.write(seed(t), 5*time.Millisecond, 0)
				con.awaitLog(w.started()) // the first transaction, before the log line, has no events
				load.await(50)
				goOn := w.holdEnd(con)
				for len(w.transaction().Topics) == 1 { // of a checkpoint alone: no halves
					goOn()
					goOn = w.holdEnd(con)
				}
				w.broker.EndHalf(t, w.transactionalID(), version, func(topic string, _ int32) bool { return c.committed(w, topic) })
				con.kill()
				w.endTxn.part(true, w.kafka.Addr()) // nothing held back arrives
				goOn()
				w.endTxn.part(false, w.kafka.Addr())
				c.aborted(w)
				con = startConnector(t, w.config)
				load.await(100)
				h, report := w.finish(load, con)
				w.wantNoneAgain(report, "though a transaction was ended by halves")
				w.verifyAll(h)
				log := string(must.Get(os.ReadFile(con.log))(t))
				if torn := strings.Contains(log, "in a part of its partitions only"); torn != (name != "nothing") {
					t.Errorf("the log says of a torn transaction: %t", torn)
				}
			})
		}
	}
}
