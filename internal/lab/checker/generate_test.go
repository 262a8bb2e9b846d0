package checker_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

const (
	topics     = 2
	keys       = 5
	partitions = 3
)

// generate returns a history where nothing is wrong, although commits overlap,
// some fail or are of unknown outcome, and the connector repeats some. The
// first transaction is committed and has several events of a single key, and is
// repeated.
func generate(seed uint64) checker.History {
	random := rand.New(rand.NewPCG(seed, 0))
	var h checker.History
	broker := broker{ends: map[string][]int64{}}
	clock := uint64(0)
	for n := range 40 {
		tx := transaction(random, n)
		tx.Began = clock + 1 + random.Uint64N(2) // may overlap the previous transaction
		tx.Ended = tx.Began + 1 + random.Uint64N(3)
		clock = tx.Began
		h.Transactions = append(h.Transactions, tx)
		if tx.Outcome == checker.RolledBack || tx.Outcome == checker.Unknown && random.IntN(2) == 0 {
			continue
		}
		records := publish(tx, n)
		h.Records = broker.append(h.Records, records)
		h.Samples = append(h.Samples, checker.Sample{Confirmed: commitLSN(n) + 1, Ends: broker.snapshot()})
		if n%7 == 0 { // the ack was lost
			h.Records = broker.append(h.Records, records)
		}
	}
	// Readers get the partitions in any interleaving.
	slices.SortStableFunc(h.Records, func(a, b checker.Record) int { return int(a.Partition) - int(b.Partition) })
	return h
}

func transaction(random *rand.Rand, n int) checker.Transaction {
	tx := checker.Transaction{XID: uint32(700 + n)}
	switch random.IntN(10) {
	case 0:
		tx.Outcome = checker.RolledBack
	case 1:
		tx.Outcome = checker.Unknown
	default:
		tx.Outcome = checker.Committed
	}
	events := 1 + random.IntN(4)
	if n == 0 {
		tx.Outcome, events = checker.Committed, 3
	}
	for i := range events {
		key := random.IntN(keys)
		if n == 0 {
			key = 0
		}
		tx.Events = append(tx.Events, event(n, i, key))
	}
	return tx
}

func event(n, i, key int) checker.Event {
	id := fmt.Sprintf("%d-%d", n, i)
	return checker.Event{
		ID:      id,
		Topic:   fmt.Sprintf("topic%d", key%topics),
		Key:     fmt.Sprintf("key%d", key),
		Value:   "payload of " + id,
		Headers: []checker.Header{{Key: "id", Value: id}, {Key: "eventType", Value: "Tested"}},
	}
}

// commitLSN is where the n-th transaction's commit record begins.
func commitLSN(n int) pg.LSN { return pg.LSN(1000 + 100*n) }

// publish makes a transaction's records.
func publish(tx checker.Transaction, n int) []checker.Record {
	var records []checker.Record
	for i, ev := range tx.Events {
		records = append(records, checker.Record{
			Topic: ev.Topic, Key: ev.Key, Value: ev.Value,
			Partition: int32(ev.Key[3]-'0') % partitions,
			Headers: append(slices.Clone(ev.Headers),
				checker.Header{Key: "cdc-lsn", Value: commitLSN(n).String()},
				checker.Header{Key: "cdc-seq", Value: fmt.Sprint(2 * i)}, // other tables' rows between
				checker.Header{Key: "cdc-xid", Value: fmt.Sprint(tx.XID)},
				checker.Header{Key: "cdc-time", Value: "2026-08-01T12:00:00.000000Z"}),
		})
	}
	return records
}

// broker numbers records.
type broker struct{ ends map[string][]int64 }

func (b *broker) append(log, records []checker.Record) []checker.Record {
	for _, rec := range records {
		if b.ends[rec.Topic] == nil {
			b.ends[rec.Topic] = make([]int64, partitions)
		}
		rec.Offset = b.ends[rec.Topic][rec.Partition]
		rec.Headers = slices.Clone(rec.Headers)
		b.ends[rec.Topic][rec.Partition]++
		log = append(log, rec)
	}
	return log
}

func (b *broker) snapshot() map[string][]int64 {
	ends := map[string][]int64{}
	for topic, of := range b.ends {
		ends[topic] = slices.Clone(of)
	}
	return ends
}
