package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
)

// whole names a record's transaction of the database, and the Kafka transaction:
// each of the latter has a separate epoch, by transaction.version 2.
type whole struct {
	lsn, xid, total string
	producer        int64
	epoch           int16
}

func wholeOf(r *kgo.Record) whole {
	w := whole{producer: r.ProducerID, epoch: r.ProducerEpoch}
	for _, h := range r.Headers {
		switch h.Key {
		case "cdc-lsn":
			w.lsn = string(h.Value)
		case "cdc-xid":
			w.xid = string(h.Value)
		case "cdc-tx-total":
			w.total = string(h.Value)
		}
	}
	return w
}

// wantWhole wants each transaction of the database in a single Kafka transaction,
// with as many records as each record says, and returns the numbers of both.
func (w *world) wantWhole() (transactions, kafka int) {
	w.t.Helper()
	records := map[whole]int{}
	in := map[string]whole{} // by transaction of the database
	commits := map[[2]int64]bool{}
	for _, r := range w.broker.Consume(w.t, w.topics(), func(have []*kgo.Record) bool { return len(have) >= len(w.reader.Records()) }) {
		is := wholeOf(r)
		records[is]++
		if was, known := in[is.lsn+is.xid]; known && was != is {
			w.t.Errorf("%s[%d]@%d is %+v, and another record of its transaction is %+v", r.Topic, r.Partition, r.Offset, is, was)
		}
		in[is.lsn+is.xid] = is
		commits[[2]int64{is.producer, int64(is.epoch)}] = true
	}
	for is, n := range records {
		if strconv.Itoa(n) != is.total {
			w.t.Errorf("%d records of %+v", n, is)
		}
	}
	return len(in), len(commits)
}

// Transactions of all sizes over all topics, some with a refused record, through
// kills in their middle: consumers see each of them as a whole.
func TestE2EExactlyOnceTransactionBoundaries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		brokers   int
		disturbed []string
	}{
		"one_broker":    {1, []string{"killed", "walsender_killed", "killed", "answer_to_EndTxn_lost", "spare_takes_over", "killed"}},
		"three_brokers": {3, []string{"killed", "coordinator_killed", "answer_to_EndTxn_lost", "killed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			transactionsAsAWhole(t, c.brokers, c.disturbed)
		})
	}
}

func transactionsAsAWhole(t *testing.T, brokers int, disturbed []string) {
	o := options{exactlyOnce: true, brokers: brokers, kafka: "transaction_boundaries: true\n    max_buffered_bytes: 32MiB"}
	refused := 0
	if brokers == 1 { // finding refused records takes many transactions, slow on several brokers
		refused = 50_000
		o = o.refusing(refused)
	}
	w := newWorld(t, o)
	s := seed(t)
	random := rand.New(rand.NewPCG(s, 700))
	c := w.start()
	load := w.write(s, 5*time.Millisecond, refused)
	written := 0
	for _, name := range disturbed {
		load.await(50 + random.IntN(300))
		before, rows := large(w.all), 4000+random.IntN(2000)
		w.exec(fmt.Sprintf(`INSERT INTO outbox SELECT gen_random_uuid(), (ARRAY['order', 'payment', 'customer'])[1 + n %% 3], 'large', 'Placed', repeat('.', 300), ''
			FROM generate_series(1, %d) n`, rows))
		written += rows
		await.Until(t, "a part of a large transaction", func() bool { c.running(); return large(w.all) > before })
		if name == "coordinator_killed" {
			c = w.killCoordinator(c)
			continue
		}
		c = disturbances[name](w, c, random)
	}
	load.stop()
	w.arrived()
	await.Until(t, "the large transactions", func() bool { c.running(); return large(w.reader) >= written })
	c.stop()
	w.allRead()
	transactions, kafka := w.wantWhole()
	t.Logf("%d transactions in %d of Kafka; of %d events of large ones, %d were aborted", transactions, kafka, written, large(w.all)-written)
	if kafka >= transactions {
		t.Error("no two transactions shared one of Kafka")
	}
	if n := large(w.reader); n != written {
		t.Errorf("%d events of large transactions, want %d", n, written)
	}
	if refused > 0 && w.ends()[deadLetter][0] == 0 {
		t.Error("no payload was over the limit")
	}
}

// large is how many events of large transactions were read.
func large(r *checker.Reader) (n int) {
	for _, rec := range r.Records() {
		if rec.Key == "large" {
			n++
		}
	}
	return n
}

// killCoordinator kills the connector together with the transaction
// coordinator.
func (w *world) killCoordinator(c *connector) *connector {
	w.t.Helper()
	n := w.cluster.Coordinator(w.t, w.transactionalID())
	w.cluster.KillNode(w.t, n)
	c.kill()
	c = startConnector(w.t, w.config)
	w.cluster.ResumeNode(w.t, n)
	return c
}

// A transaction larger than the bound is not published in parts unless the
// configuration says so.
func TestE2EExactlyOnceOversizedTransaction(t *testing.T) {
	w := newWorld(t, options{exactlyOnce: true, kafka: "transaction_boundaries: true\n    max_buffered_bytes: 1MiB"})
	c := w.start()
	w.exec(`INSERT INTO outbox VALUES (gen_random_uuid(), 'order', 'small', 'Placed', '{}')`,
		`INSERT INTO outbox SELECT gen_random_uuid(), 'payment', 'large', 'Placed', repeat('.', 300) FROM generate_series(1, 5000)`,
		`INSERT INTO outbox VALUES (gen_random_uuid(), 'order', 'small', 'Placed', '{}')`)
	if code := c.wait(); code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
	log, err := os.ReadFile(c.log)
	if err != nil || !strings.Contains(string(log), "has 5000 events") || !strings.Contains(string(log), "--skip-to") {
		t.Errorf("the log has neither size nor remedy: %v", err)
	}
	await.Until(t, "the event before it", func() bool { return len(w.reader.Records()) > 0 })
	for _, r := range w.reader.Records() {
		if r.Key == "large" {
			t.Fatal("a part of it was published")
		}
	}

	w.rewriteConfig("transaction_boundaries: true", "transaction_boundaries: true\n    on_oversized_transaction: split")
	c = w.start()
	await.Until(t, "all of it, and the event behind it", func() bool { c.running(); return len(w.reader.Records()) >= 5002 })
	c.stop()
	w.allRead()
	totals := map[string]int{}
	for _, r := range w.broker.Consume(t, w.topics(), func(have []*kgo.Record) bool { return len(have) >= len(w.reader.Records()) }) {
		totals[string(r.Key)+" of "+wholeOf(r).total]++
	}
	if totals["small of 1"] != 2 || totals["large of "] != 5000 || len(totals) != 2 {
		t.Errorf("%v, want 2 of 1, and 5000 without a total", totals)
	}
}
