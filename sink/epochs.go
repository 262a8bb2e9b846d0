package sink

import (
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// epochs tells whether each transaction has an epoch of its own. It has with
// transaction.version 2 (KIP-890). Then brokers refuse a request coming late,
// when the next transaction is open. Before that version they take it for a
// request of that one.
//
// A lowered version is noticed one transaction late.
type epochs struct {
	last   int16       // that of the transaction committed last
	known  bool        // last is set, and no transaction has begun since
	differ atomic.Bool // what was seen; also read by the client
}

// requestPatience is how long the client repeats a request, and its default.
const requestPatience = 30 * time.Second

// retryFor is kgo.RetryTimeoutFn's argument. Where epochs do not differ, the
// end of a transaction is asked for once. A request without an answer may come
// late, and end the next transaction: everything written by then counts,
// checkpoint included, and the rest may not. With a single request nobody knows
// what counts, and the next claim has an epoch with which brokers refuse the
// late request.
//
// An answer that is an error is not asked again either. Brokers may have moved, but
// the client talked to the right one when it added the partitions.
func (e *epochs) retryFor(key int16) time.Duration {
	if kmsg.Key(key) == kmsg.EndTxn && !e.differ.Load() {
		return time.Nanosecond // 0 is for ever
	}
	return requestPatience
}

// committed notes that a transaction of the epoch was.
func (e *epochs) committed(epoch int16) { e.last, e.known = epoch, true }

// begin notes the epoch of the next transaction. After an abort it tells nothing.
func (e *epochs) begin(epoch int16) {
	if e.known {
		e.differ.Store(epoch != e.last)
	}
	e.known = false
}
