package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// A producer id has 32,767 epochs. Each transaction of version 2 takes an epoch,
// so the id is used up within the hour; with version 1 each claim takes an epoch.
func TestE2EExactlyOnceWithAWornProducerID(t *testing.T) {
	t.Parallel()
	for _, version := range []int16{1, 2} {
		t.Run(fmt.Sprintf("transactions_of_version_%d", version), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{exactlyOnce: true})
			w.broker.SetFeature(t, "transaction.version", version)
			w.broker.Wear(t, w.transactionalID(), kafkatest.LastEpoch-12)
			c := w.start()
			load := w.write(seed(t), 5*time.Millisecond, 0)
			w.endTxn.repeatedly.Store(version == 2) // also for the end with the next id
			await.Until(t, "another producer id", func() bool {
				c.running()
				if version == 1 {
					before := len(w.all.Records())
					await.Until(t, "a record", func() bool { return len(w.all.Records()) > before })
					c.kill()
					c = w.start() // claims the transactional id
				}
				return len(w.all.Producers()) > 1
			})
			load.await(300)
			w.endTxn.repeatedly.Store(false)
			h, report := w.finish(load, c)
			w.wantNoneAgain(report, "with a new producer id")
			w.verifyAll(h)
			for id, epoch := range w.all.Producers() {
				if epoch >= kafkatest.LastEpoch {
					t.Errorf("producer id %d wrote with epoch %d; a coordinator that ends then leaves the transactional id unusable", id, epoch)
				}
			}
			if log, _ := os.ReadFile(c.log); bytes.Contains(log, []byte(beganAnew)) {
				t.Error("the connector had to begin anew")
			}
		})
	}
}

// The connector is suspended while the request for the end of a transaction is
// on the way, until brokers have aborted the transaction. With version 2 the
// client asks again, and brokers refuse. With version 1 the client asks once,
// with the brokers' timeout. Here brokers look for expired transactions often, or
// the client would always time out first.
func TestE2EExactlyOncePausedAtTheEndOfATransaction(t *testing.T) {
	t.Parallel()
	for _, version := range []int16{1, 2} {
		t.Run(fmt.Sprintf("transactions_of_version_%d", version), func(t *testing.T) {
			w := newWorld(t, options{exactlyOnce: true, broker: []kafkatest.Option{
				kafkatest.Setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", "200")}})
			w.broker.SetFeature(t, "transaction.version", version)
			c := w.start()
			load := w.write(seed(t), 5*time.Millisecond, 0)
			// The transaction was open for longer than brokers allow, or they tell nothing else.
			refusal := regexp.MustCompile(`(commit the transaction: |and brokers abort it after \S+ \()` + kerr.InvalidTxnState.Message)
			refused := func() bool {
				log, _ := os.ReadFile(c.log)
				return refusal.Match(log)
			}
			delivered := func() {
				t.Helper()
				load.await(100)
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				must.OK(t, w.reader.AwaitEvents(ctx, w.committed()))
			}
			delivered()
			for range 3 { // a slow machine has no time for the second question
				goOn := w.holdEnd(c)
				c.signal(syscall.SIGSTOP)
				await.Until(t, "the abort by brokers", func() bool { return w.transaction().State == "CompleteAbort" })
				c.signal(syscall.SIGCONT)
				goOn()
				delivered()
				if version == 1 || refused() {
					break
				}
			}
			c.awaitLog(beganAnew)
			if version == 2 && !refused() {
				t.Errorf("brokers did not refuse the end of a transaction that they had aborted with %s", kerr.InvalidTxnState.Message)
			}
			h, report := w.finish(load, c)
			w.wantNoneAgain(report, "after an abort by brokers")
			w.verifyAll(h)
		})
	}
}

// transaction is the brokers' description of the connector's transaction.
func (w *world) transaction() kadm.DescribedTransaction {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	described, err := w.admin.DescribeTransactions(ctx, w.transactionalID())
	if err != nil {
		return kadm.DescribedTransaction{State: err.Error()}
	}
	return described[w.transactionalID()]
}

// The coordinator of the connector's transactions moves from broker to broker,
// without any of them ending.
func TestE2EExactlyOnceWhileTheCoordinatorMoves(t *testing.T) {
	w := newWorld(t, options{exactlyOnce: true, brokers: 3})
	s := seed(t)
	random := rand.New(rand.NewPCG(s, 700))
	c := w.start()
	load := w.write(s, 10*time.Millisecond, 0)
	for range 8 {
		load.await(50 + random.IntN(200))
		from := w.cluster.Coordinator(t, w.transactionalID())
		w.cluster.MoveLeader(t, coordinatorsLog, 0)
		await.Until(t, "another coordinator", func() bool {
			to := w.cluster.Coordinator(t, w.transactionalID())
			return to >= 0 && to != from
		})
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if err := w.reader.AwaitEvents(ctx, w.committed()); err != nil {
			t.Errorf("after a move: %v", err)
		}
		cancel()
		c.running()
	}
	h, report := w.finish(load, c)
	w.wantNoneAgain(report, "after moves of the coordinator")
	w.verifyAll(h)
}
