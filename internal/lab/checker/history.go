package checker

import (
	"sync"
	"time"
)

// Header is a record's header.
type Header struct{ Key, Value string }

// Event is the expected record of an outbox row.
type Event struct {
	ID    string
	Topic string
	Key   string
	Value string
	// Headers are the record's first headers. The position's headers follow, and
	// then perhaps others.
	Headers []Header
}

// Outcome is how a transaction ended, as far as the writer knows.
type Outcome uint8

// The outcomes. Unknown is the outcome of a COMMIT with a lost answer.
const (
	Unknown Outcome = iota
	Committed
	RolledBack
)

// Transaction is a writer's transaction.
type Transaction struct {
	XID uint32 // 0 if unknown to the writer
	// Events are published by a commit, in the order of their inserts, without
	// those of rolled-back savepoints.
	Events  []Event
	Outcome Outcome
	// Began and Ended are readings of the Ledger's clock from before the COMMIT
	// was sent and from after the answer: a transaction ended before another began
	// was committed first.
	Began, Ended uint64
}

// Record is a record in a topic.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	Timestamp time.Time
	Key       string
	Value     string
	Headers   []Header
}

// Header returns the value of the key's first header, or "".
func (r *Record) Header(key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return h.Value
		}
	}
	return ""
}

// id is the event's id, or "" where the record has none.
func (r *Record) id() string { return r.Header("id") }

// Ledger is where writers note their transactions. The methods may be called
// from any goroutine.
type Ledger struct {
	mu           sync.Mutex
	clock        uint64
	transactions []Transaction
	committed    int // events
}

// Now reads the clock, a counter without two equal readings. A writer calls Now
// before sending COMMIT.
func (l *Ledger) Now() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock++
	return l.clock
}

// Add notes a transaction just ended, and sets its Ended. The transaction is the ledger's
// from then on; of a long value the ledger keeps the digest.
func (l *Ledger) Add(tx Transaction) {
	for i := range tx.Events {
		tx.Events[i].Value = kept(tx.Events[i].Value)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock++
	tx.Ended = l.clock
	l.transactions = append(l.transactions, tx)
	if tx.Outcome == Committed {
		l.committed += len(tx.Events)
	}
}

// Committed is the number of events of the transactions known to be committed.
func (l *Ledger) Committed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.committed
}

// Transactions returns those noted so far.
func (l *Ledger) Transactions() []Transaction {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.transactions[:len(l.transactions):len(l.transactions)]
}
