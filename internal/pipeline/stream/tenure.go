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
// The server's process ends when it has received nothing from us for
// wal_sender_timeout. The timeout begins anew with each message of ours that it
// receives, and no earlier than we sent it. So if a message has been received,
// the slot is ours until the timeout has passed since we sent that message.
// The stream does not tell whether it has been: what we read may have waited
// in the socket while we were suspended, and a server that still sends may hear
// nothing. So the server is asked beside the stream, with the monitor's looks:
// if the process holds the slot after the question was sent, then the two reach
// each other, and everything sent on the stream before the question has been
// received. Later messages do not count.
//
// If nobody can be asked, since the server takes no more connections, the
// stream has to do: see wal.Stream.Answered. It is no help while the stream is
// not read, as all memory is in use until Kafka takes more.
//
// The margin is for what is on its way to a broker when the lease ends.
//
// The server may free the slot earlier. Somebody ends the process
// (pg_terminate_backend), or the stream alone is cut off: then the session
// beside it is still there, and our successor waits for it (see predecessors).
// The server restarts, or a standby takes its place: we learn of it by the end
// of a connection, which ends the lease at once, or by silence, for which
// longest is the bound. Not while we are suspended: there may be a moment after
// it in which we write.
type tenure struct {
	process catalog.OwnSender
	stream  *wal.Stream
	lease   *lease.Lease // nil: transactions fence
	begun   atomic.Bool  // the lease was begun
	over    atomic.Bool  // the slot is not ours any more
}

const (
	// marginPart is which part of the timeout the margin is.
	marginPart = 10
	// longest bounds the lease from the last answer on, whatever the timeout: a
	// machine that is gone ends no connection. It is longer than two looks of
	// the monitor of which one was in vain, and shorter than failovers take
	// until they begin.
	longest = 20 * time.Second
)

// timeout is how long a lease lasts since a message that was received, at most.
func (t *tenure) timeout() time.Duration {
	if timeout := t.process.Timeout; timeout > 0 {
		return timeout - timeout/marginPart
	}
	return longest // the server waits for us for ever
}

// until is when the lease ends if the server has received everything sent at
// that time, and has answered a question of the other time.
func (t *tenure) until(sent, asked lease.Instant) lease.Instant {
	if t.process.Timeout == 0 {
		sent = asked
	}
	return min(sent.Add(t.timeout()), asked.Add(longest))
}

// answered is the same by the stream alone: when the server answered, it had heard
// from us in the last half of the timeout.
func (t *tenure) answered(at lease.Instant) lease.Instant {
	return t.until(at.Add(-t.process.Timeout/2), at)
}

// heard is the same by the last answer, if there was one.
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
	if t.over.Load() { // it may have ended in between
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

// lost reports whether the lease was held, and is not any more.
func (t *tenure) lost() bool { return t.begun.Load() && !t.lease.Held() }

var (
	errNotReader = errors.New("this instance does not read the slot any more")
	errNotShown  = errors.New("PostgreSQL has not shown for long that this instance still reads the slot")
)

// ask asks, beside the stream, whether the slot is still ours, and renews the
// lease or ends it. The answer is the row of the slot a look begins with, so an
// idle instance asks nothing for the lease alone.
func (s *source) ask(ctx context.Context, sql *pgx.Conn) (*catalog.View, error) {
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
