package stream

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lease"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// tenure is how long the server keeps the slot for us at least.
//
// Its process ends when it has received nothing from us for wal_sender_timeout. That
// time begins anew with each message of ours that it receives, and no earlier than we
// sent it. So if a message has been received, the slot is ours until the timeout has
// passed since we sent that message. Nothing on the stream says which has been: what
// we read may have waited in the socket while we were suspended, and a server that
// still sends may hear nothing. So the server is asked beside the stream, with the
// monitor's looks: if the process holds the slot after the question was sent, then the
// two reach each other, and what was sent on the stream before the question has been
// received. What was sent later does not count.
//
// If nobody can be asked, since the server takes no more connections, the stream has to
// do: see wal.Stream.Answered. It is no help where it is not read, as all memory is in
// use until Kafka takes more.
//
// The margin is for what is on its way to a broker when the lease ends.
//
// The server may free the slot earlier for other reasons: somebody ends the process
// (pg_terminate_backend), the server restarts or crashes, a standby takes its place.
// We learn of it by the end of the connection, which ends the lease at once, but not
// while we are suspended: there may be a moment after it in which we write.
type tenure struct {
	process catalog.OwnSender
	stream  *wal.Stream
	over    bool // the process does not hold the slot any more; of the monitor
}

// margin is a part of the timeout.
const marginPart = 10

// from is when the lease ends if the server has received what was sent at that time.
func (t *tenure) from(sent lease.Instant) lease.Instant {
	timeout := t.process.Timeout
	if timeout == 0 {
		return lease.Never // the server waits for us for ever
	}
	return sent.Add(timeout - timeout/marginPart)
}

// answered is the same by the stream alone: when the server answered, it had heard
// from us in the last half of the timeout.
func (t *tenure) answered(at lease.Instant) lease.Instant {
	return t.from(at.Add(-t.process.Timeout / 2))
}

// often bounds an interval, so that the lease is renewed in good time.
func (t *tenure) often(interval time.Duration) time.Duration {
	if timeout := t.process.Timeout; timeout > 0 {
		return min(interval, timeout/4)
	}
	return interval
}

// ask asks, beside the stream, whether the slot is still ours, and renews the lease or
// ends it.
func (s *source) ask(ctx context.Context, sql *pgx.Conn) error {
	sent := s.tenure.stream.Sent() // before the question
	ours, err := s.tenure.process.Holds(ctx, sql, s.opts.Slot)
	switch {
	case err != nil:
		return err
	case !ours:
		s.tenure.over = true
		s.lease.End()
	case sent != 0:
		s.lease.Renew(s.tenure.from(sent))
	}
	return nil
}

// unasked renews the lease when nobody could be asked.
func (s *source) unasked() {
	if at := s.tenure.stream.Answered(); at != 0 && !s.tenure.over {
		s.lease.Renew(s.tenure.answered(at))
	}
}
