package sink

import (
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// epochs tells whether each transaction has an epoch of its own, as with
// transaction.version 2 (KIP-890). Then brokers refuse a late request, when the
// next transaction is open. Before version 2 they take the request for a part of
// the next transaction.
//
// A lowered version is noticed after one more transaction.
type epochs struct {
	last   int16       // of the last commit
	known  bool        // last is set, and no transaction has begun since
	differ atomic.Bool // also read by the client
}

// requestPatience is how long the client repeats a request: the client's default.
const requestPatience = 30 * time.Second

// retryFor is kgo.RetryTimeoutFn's argument. Where epochs do not differ, the
// end of a transaction is requested once. A request without an answer may come
// late, and end the next transaction: everything written by then counts,
// checkpoint included, and the rest may not. After a single request the outcome
// is unknown, and the next claim has an epoch with which brokers refuse the
// late request.
//
// The request is not repeated after an error either. The coordinator may have moved, but
// the client talked to the right broker when it added the partitions.
func (e *epochs) retryFor(key int16) time.Duration {
	if kmsg.Key(key) == kmsg.EndTxn && !e.differ.Load() {
		return time.Nanosecond // 0 is for ever
	}
	return requestPatience
}

// committed notes the epoch of a commit.
func (e *epochs) committed(epoch int16) { e.last, e.known = epoch, true }

// begin notes the epoch of the next transaction. After an abort the epoch tells nothing.
func (e *epochs) begin(epoch int16) {
	if e.known {
		e.differ.Store(epoch != e.last)
	}
	e.known = false
}
