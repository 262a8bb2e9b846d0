package wal

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lease"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/unwatched"
)

// Options are the options of a stream.
type Options struct {
	Slot        string
	Publication string
	// Start is where to begin. The server silently forwards an older position
	// to the slot's confirmed position, and silently skips to a newer one: the
	// caller has compared them.
	Start pg.LSN
	// Confirmed is the confirmed position until Confirm is called. Confirmed is at
	// or before Start; 0 means Start.
	Confirmed pg.LSN
	// Messages asks for logical messages too, those with the Prefix, or all if
	// that is empty. The position counts all.
	Messages bool
	Prefix   string
	// Notice is called, within Next, with the content of each logical message of a
	// transaction with the prefix catalog.NoticePrefix, before the transaction's end;
	// the messages are not delivered. Without Messages they count for no position. nil:
	// they are like all others.
	Notice func(content []byte)
	// MessagesOnly: no rows are wanted. The stream then does not fail at the
	// server's warning about rows left out for want of the publication.
	MessagesOnly bool
	// StatusInterval is the longest time between standby status updates.
	// Required.
	StatusInterval time.Duration
	// LivenessTimeout bounds the server's silence during our wait. The server
	// is asked for a reply every StatusInterval. Required.
	LivenessTimeout time.Duration
	// Silent is asked each time the server has been silent for so long, and is
	// told for how long in all. The stream waits on unless Silent returns an
	// error. While decoding a large transaction without sending anything, the
	// server answers only every half of wal_sender_timeout (walsender.c,
	// WalSndUpdateProgress), and before PostgreSQL 15 not even so. nil: silence
	// ends the stream.
	Silent func(ctx context.Context, silent time.Duration) error
	// Ended is called at the first sign that the connection has ended, once or
	// twice and from any goroutine: a busy caller may not come to Next for
	// long. nil: nobody asks.
	Ended func()
	// Charset is the database's, as by catalog.ReadCharset.
	Charset *pg.Charset
	// Gather is for how long transactions that trickle in may gather before they
	// are read, all at once; at most 100 ms. 0: each is read when it comes.
	Gather time.Duration
	// Wanted tells whether the values of a row are needed, by its relation and
	// position. Wanted is called for rows larger than a read (128 KiB): rows of
	// tables of no interest are thrown away on arrival, and delivered without
	// values. The calls are within Next. nil: all are wanted.
	Wanted func(*pg.Row) bool
	// Keep tells of an announced table whether its rows may ever be wanted. The
	// definitions of others are not kept, however many tables there are, and
	// their rows are delivered without values, of a relation with an OID only.
	// The calls are within Next. nil: all are kept.
	Keep func(*pg.Relation) bool
	// Recycle uses the memory of messages again that nobody retains; see Chunk.
	Recycle bool
}

// Stream reads the changes of committed transactions from a replication slot.
//
// Next is called by a single goroutine, the sole reader of the connection. A
// second goroutine, owned by the Stream from Open to Close, sends the standby
// status updates, so a caller that is busy or blocked between two calls of Next
// keeps the connection (failure mode 14, docs/failure-modes.md).
type Stream struct {
	conn    net.Conn
	socket  io.Reader // of the bytes received: beneath TLS, or conn
	frames  frameReader
	kept    kept
	decoder *decoder
	order   *sequencer // nil without messages
	status  *statusSender

	liveness    time.Duration
	silence     func(context.Context, time.Duration) error // see Options.Silent; may be nil
	asked       error                                      // what Silent returned
	deadlined   time.Time                                  // when the read deadline was last set
	lastRead    int                                        // bytes of the last read
	roomy       bool                                       // it had room for more: there was no more to read
	readAt      time.Time                                  // when the read returned
	lastWait    time.Duration                              // time since the read before
	gather      time.Duration                              // see Options.Gather
	timer       *unwatched.Timer                           // of the rests; nil before the first
	loopback    bool                                       // conn is over TCP loopback
	sinceNap    int                                        // bytes read since the last nap
	napped      time.Time                                  // when the nap began
	at          pg.LSN                                     // of the last message from the log
	rowless     bool                                       // no rows are wanted
	received    atomic.Uint64
	heard       heard
	requested   lease.Instant // before the stream was asked for
	ended       func()        // see Options.Ended
	reading     atomic.Int64  // when the read in progress began, after opened; 0: none
	opened      time.Time
	ctx         context.Context // interrupts reads; see interruptible
	uninterrupt func()          // undoes the last interruptible
	err         error           // of the failed Next
	broken      bool            // the connection, not the context, ended Next
}

// Open takes over an idle replication connection and starts streaming; ctx
// bounds the start, and from the first Next on no longer matters. On an error
// the connection is closed. The error is ErrSlotActive if another process
// holds the slot.
func Open(ctx context.Context, conn *pgconn.PgConn, o Options) (*Stream, error) {
	if as := catalog.SendAsStored(o.Charset, false); as != "" {
		if _, err := conn.Exec(ctx, as).ReadAll(); err != nil {
			return nil, errors.Join(fmt.Errorf("ask for text as it is stored: %w", err), conn.Close(ctx))
		}
	}
	// After a long write, pgconn may still read in the background, and would take
	// the first frames away.
	if err := conn.SyncConn(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("take over replication connection: %w", err), conn.Close(ctx))
	}
	hijacked, err := conn.Hijack()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("take over replication connection: %w", err), conn.Close(ctx))
	}
	decoder := newDecoder()
	decoder.prefix, decoder.wanted, decoder.keep, decoder.charset = o.Charset.Encode(o.Prefix), o.Wanted, o.Keep, o.Charset
	decoder.notice, decoder.uncounted = o.Notice, !o.Messages
	s := &Stream{
		conn:     hijacked.Conn,
		socket:   hijacked.Conn,
		decoder:  decoder,
		liveness: o.LivenessTimeout,
		gather:   min(o.Gather, maxRest),
		opened:   time.Now(),
		loopback: catalog.OverLoopback(hijacked.Conn),
		rowless:  o.MessagesOnly,
	}
	if o.Messages {
		s.order = &sequencer{}
	}
	s.frames.src = s.source()
	s.frames.unwanted = s.unwanted
	if o.Recycle {
		s.frames.pool = newChunkPool()
	}
	s.received.Store(uint64(o.Start))
	if err := s.start(ctx, o); err != nil {
		s.uninterrupt()
		s.release()
		return nil, err
	}
	s.silence, s.ended = o.Silent, o.Ended
	confirmed := o.Start
	if o.Confirmed != 0 {
		confirmed = min(confirmed, o.Confirmed)
	}
	s.status = startStatusSender(s.conn, &s.received, confirmed, o.StatusInterval, s.ended)
	return s, nil
}

// source is what frames are read from. Reads of the socket are paced; TLS is above them.
func (s *Stream) source() io.Reader {
	encrypted, ok := s.conn.(*tls.Conn)
	if !ok {
		return (*pacedReader)(s)
	}
	b := &beneath{src: (*pacedReader)(s), buf: make([]byte, tlsBuffer)}
	s.socket = catalog.Beneath(encrypted, b)
	return &records{encrypted, b}
}

// start sends START_REPLICATION and waits for the copy-both phase.
func (s *Stream) start(ctx context.Context, o Options) error {
	s.interruptible(ctx)
	s.requested = lease.Now()
	query := &pgproto3.Query{String: startCommand(o)}
	msg, err := query.Encode(nil)
	if err != nil {
		return fmt.Errorf("start replication: %w", err)
	}
	if _, err := s.conn.Write(msg); err != nil {
		return fmt.Errorf("start replication: %w", err)
	}
	for {
		kind, body, err := s.frames.next()
		if err != nil {
			return fmt.Errorf("start replication: %w", s.cause(err))
		}
		switch kind {
		case frameCopyBoth:
			return catalog.Unlimited(s.conn) // the stream may rest; LivenessTimeout holds from here on
		case frameError:
			return fmt.Errorf("start replication from slot %s at %s: %w", o.Slot, o.Start, serverError(body))
		case frameNotice, frameParameter:
		default:
			return fmt.Errorf("start replication: %w: frame %q", errProtocol, kind)
		}
	}
}

// Next returns the stream's next message; see Message for the time of validity.
// Next blocks until there is a message, ctx ends or the connection ends. After
// an error the stream can only be closed.
func (s *Stream) Next(ctx context.Context) (*Message, error) {
	if s.err != nil {
		return nil, s.err
	}
	if s.ctx != ctx {
		s.interruptible(ctx)
	}
	if s.order != nil {
		if msg := s.order.deliver(); msg != nil {
			return msg, nil
		}
	}
	for {
		kind, body, err := s.frames.next()
		if err != nil {
			return nil, s.fail(fmt.Errorf("read replication stream: %w", s.cause(err)))
		}
		s.decoder.cut = s.frames.cut
		msg, err := s.handle(kind, body)
		if err != nil {
			return nil, s.fail(err)
		}
		if msg != nil {
			msg.Chunk = s.frames.chunk
			msg.span = span{&s.kept, s.frames.base, s.frames.place(), int64(len(body))}
			if s.order != nil {
				msg = s.order.take(msg, s.at)
			}
		}
		if msg != nil {
			return msg, nil
		}
	}
}

// Buffered reports whether Next has a message, or an error, without reading
// from the connection. To be called by the goroutine of Next.
func (s *Stream) Buffered() bool { return s.frames.whole() }

func (s *Stream) fail(err error) error {
	s.err = err
	s.broken = s.ctx.Err() == nil
	if s.broken && s.ended != nil {
		s.ended()
	}
	return err
}

// Received is the last position up to which everything was delivered by Next.
// Received may be called from any goroutine.
func (s *Stream) Received() pg.LSN { return pg.LSN(s.received.Load()) }

// Sent is the time of the last standby status update or, before the first, of
// the request for the stream. Sent may be called from any goroutine.
func (s *Stream) Sent() lease.Instant {
	return max(s.requested, lease.Instant(s.status.sent.Load()))
}

// Answered is when the server sent the last answer that Next has read, or
// earlier; 0 before the first. After half of wal_sender_timeout without a word
// from us, the server does not answer, but asks (walsender.c,
// WalSndKeepaliveIfNecessary). Answered may be called from any goroutine.
func (s *Stream) Answered() lease.Instant { return lease.Instant(s.heard.last.Load()) }

// Server is the address the stream comes from.
func (s *Stream) Server() net.Addr { return s.conn.RemoteAddr() }

// Silent is how long Next has waited for the server to say anything; 0 while
// not waiting. The server is asked every StatusInterval. Silent may be called
// from any goroutine.
func (s *Stream) Silent() time.Duration {
	if began := s.reading.Load(); began != 0 {
		return time.Since(s.opened) - time.Duration(began)
	}
	return 0
}

// Confirm tells the server that everything up to and including lsn is durable
// downstream. Confirm never blocks and may be called from any goroutine; a
// position beyond what the server sent on this connection is cut to that
// (docs/internals/DESIGN.md, invariant 3), and one before an earlier one is
// ignored.
func (s *Stream) Confirm(lsn pg.LSN) { s.status.confirm(lsn) }

// Close sends a last status update, ends the copy, waits until the server has
// taken note or ctx ends, and closes the connection. Close returns an error if
// the server may not have seen the last confirmed position; nothing is lost
// then, but events may be sent again. To be called once, and not while Next is
// in progress.
func (s *Stream) Close(ctx context.Context) error {
	defer s.release()
	defer func() { s.uninterrupt() }()
	if err := s.status.stop(); err != nil {
		return fmt.Errorf("send last standby status: %w", err)
	}
	if s.broken {
		return nil // the connection is gone, and the caller has the error
	}
	s.interruptible(ctx)
	if err := s.endCopy(); err != nil {
		return fmt.Errorf("end replication stream: %w", s.cause(err))
	}
	return nil
}

// release closes the stream's connection and sockets.
func (s *Stream) release() {
	_ = s.conn.Close()
	if s.timer != nil {
		_ = s.timer.Close()
	}
}

// endCopy sends CopyDone and discards the messages under way: the server
// answers CopyDone only after processing the status updates before.
func (s *Stream) endCopy() error {
	done, err := (&pgproto3.CopyDone{}).Encode(nil)
	if err != nil {
		return err
	}
	if _, err := s.conn.Write(done); err != nil {
		return err
	}
	for {
		kind, body, err := s.frames.next()
		if err != nil {
			return err
		}
		if kind == frameError {
			return serverError(body)
		}
		if kind == frameCopyDone {
			break
		}
	}
	terminate, err := (&pgproto3.Terminate{}).Encode(nil)
	if err != nil {
		return err
	}
	_, err = s.conn.Write(terminate)
	return err
}

// interruptible makes reads end when ctx does, in place of the context before.
func (s *Stream) interruptible(ctx context.Context) {
	if s.uninterrupt != nil {
		s.uninterrupt()
	}
	s.ctx = ctx
	s.deadlined = time.Time{}
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(fired)
		_ = s.conn.SetReadDeadline(time.Unix(1, 0))
	})
	s.uninterrupt = sync.OnceFunc(func() {
		if !stop() {
			<-fired // otherwise it would end the next context's reads
		}
	})
}

// cause explains a failed read: by the context's cause, else by a failed status
// update, else by a passed deadline.
func (s *Stream) cause(err error) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	closed := errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed)
	if closed && s.status != nil { // closed by a failed update only
		if err := s.status.wait(); err != nil {
			return fmt.Errorf("send standby status: %w", err)
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("no answer from PostgreSQL for %s: %w", s.liveness, err)
		if s.asked != nil {
			err = fmt.Errorf("%w; asked beside the stream: %w", err, s.asked)
		}
	}
	return err
}

// startCommand is START_REPLICATION for pgoutput's protocol version 1
// (PostgreSQL documentation, "Streaming Replication Protocol").
func startCommand(o Options) string {
	publication := pgsql.Literal(pgx.Identifier{o.Charset.Encode(o.Publication)}.Sanitize())
	cmd := fmt.Sprintf("START_REPLICATION SLOT %s LOGICAL %s (proto_version '1', publication_names %s",
		pgx.Identifier{o.Slot}.Sanitize(), o.Start, publication)
	if o.Messages || o.Notice != nil {
		cmd += ", messages 'true'"
	}
	return cmd + ")"
}
