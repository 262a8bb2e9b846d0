package stream

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lease"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// tenure is the time for which the slot is surely ours, and for which the lease of the
// sink is held.
//
// The server's process ends after wal_sender_timeout without a message from us.
// The timeout begins anew with each message received, no earlier than we sent it.
// So after a received message the slot is ours until the timeout has passed since
// we sent the message. The stream does not tell of receipts: a message to us may
// have waited in the socket while we were suspended, and a server may send and
// hear nothing. So the server is asked beside the stream, with the monitor's
// looks: if the process holds the slot after the question was sent, then both
// sides reach each other, and everything sent on the stream before the question
// has been received. Later messages do not count.
//
// If nobody can be asked, since the server takes no more connections, the stream
// has to do: see wal.Stream.Answered. Not while the stream is not read, as all
// memory is in use until Kafka takes more.
//
// The margin is for what is on its way to a broker when the lease ends.
//
// The server may free the slot earlier. Somebody ends the process
// (pg_terminate_backend), or the stream alone is cut off: then the session
// beside it is still there, and our successor waits for it (see predecessors).
// The server restarts, or a standby takes its place: we learn of it by the end
// of a connection, which ends the lease at once, or by silence, for which
// longest is the bound. Not while we are suspended: there may be a moment
// afterwards in which we write.
type tenure struct {
	process catalog.OwnSender
	stream  *wal.Stream
	lease   *lease.Lease // nil: transactions fence
	begun   atomic.Bool  // the lease was begun
	over    atomic.Bool  // the slot is not ours any more
}

const (
	// marginPart: the margin is the timeout divided by marginPart.
	marginPart = 10
	// longest bounds the lease from the last answer on, with any timeout: a lost
	// machine ends no connection. longest outlasts two looks of the monitor, the
	// first in vain, and is over before failovers usually begin.
	longest = 20 * time.Second
)

// timeout is how long a lease lasts since a received message, at most.
func (t *tenure) timeout() time.Duration {
	if timeout := t.process.Timeout; timeout > 0 {
		return timeout - timeout/marginPart
	}
	return longest // the server waits for us for ever
}

// until is when the lease ends if the server has received everything up to sent, and
// has answered a question asked at asked.
func (t *tenure) until(sent, asked lease.Instant) lease.Instant {
	if t.process.Timeout == 0 {
		sent = asked
	}
	return min(sent.Add(t.timeout()), asked.Add(longest))
}

// answered is until by the stream alone: when the server answered, it had heard from
// us in the last half of the timeout.
func (t *tenure) answered(at lease.Instant) lease.Instant {
	return t.until(at.Add(-t.process.Timeout/2), at)
}

// heard is until by the last answer, if any.
func (t *tenure) heard() (until lease.Instant, ok bool) {
	at := t.stream.Answered()
	return t.answered(at), at != 0
}

// often bounds an interval, so that the lease is renewed in good time.
func (t *tenure) often(interval time.Duration) time.Duration {
	if timeout := t.process.Timeout; timeout > 0 {
		return min(interval, timeout/4)
	}
	return interval
}

// begin begins the lease.
func (t *tenure) begin(until lease.Instant) {
	t.begun.Store(true)
	t.lease.Set(until)
	if t.over.Load() { // ended in between
		t.lease.End()
	}
}

// end ends the lease: the slot may be another instance's from now on.
func (t *tenure) end() {
	t.over.Store(true)
	t.lease.End()
}

// ended reports whether the slot is not ours any more.
func (t *tenure) ended() bool { return t.over.Load() }

// lost reports whether the lease was held, and is held no more.
func (t *tenure) lost() bool { return t.begun.Load() && !t.lease.Held() }

var (
	errNotReader = errors.New("this instance does not read the slot any more")
	errNotShown  = errors.New("PostgreSQL has not shown for long that this instance still reads the slot")
)

// ask asks, beside the stream, whether the slot is still ours, and renews or ends
// the lease. The answer is the slot's row at the beginning of a look, so an idle
// instance asks nothing for the lease alone.
func (s *source) ask(ctx context.Context, sql *pgx.Conn) (*catalog.View, error) {
	if s.lastWords != nil && sql.IsClosed() {
		return nil, s.lastWords
	}
	var v catalog.View
	until, err := s.tenure.asked(func() (catalog.Slot, error) {
		err := v.ReadSlot(ctx, sql, s.names())
		return v.Slot, err
	})
	if err == nil {
		s.lease.Renew(until)
	}
	return &v, err
}

// asked is until when the slot is ours, as the server says beside the stream.
func (t *tenure) asked(read func() (catalog.Slot, error)) (until lease.Instant, err error) {
	sent, asked := t.stream.Sent(), lease.Now() // before the question
	slot, err := read()
	if err == nil && !t.process.Holds(slot) {
		t.end()
		err = errNotReader
	}
	return t.until(sent, asked), err
}

// unasked renews the lease when nobody could be asked.
func (s *source) unasked() {
	if until, ok := s.tenure.heard(); ok {
		s.lease.Renew(until)
	}
}
