package wal

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lease"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Frame types of the copy-both phase (PostgreSQL documentation, "Message
// Formats").
const (
	frameCopyBoth  = 'W'
	frameCopyData  = 'd'
	frameCopyDone  = 'c'
	frameError     = 'E'
	frameNotice    = 'N'
	frameParameter = 'S'
	frameComplete  = 'C'
	frameReady     = 'Z'
)

// handle returns the message in a frame, or nil where the frame has none.
func (s *Stream) handle(kind byte, body []byte) (*Message, error) {
	switch kind {
	case frameCopyData:
		if len(body) == 0 {
			return nil, fmt.Errorf("copy data: %w", errShort)
		}
		switch body[0] {
		case pglogrepl.XLogDataByteID:
			return s.walData(body[1:])
		case pglogrepl.PrimaryKeepaliveMessageByteID:
			return s.keepalive(body[1:])
		}
		return nil, fmt.Errorf("%w: copy data %q", errProtocol, body[0])
	case frameError:
		return nil, &ServerError{Within: s.within(), Err: serverError(body)}
	case frameNotice:
		if s.rowless {
			return nil, nil
		}
		return nil, serverNotice(body)
	case frameParameter:
		return nil, nil
	case frameComplete: // a stopping server ends without CopyDone (walsender.c, WalSndDone)
		return nil, fmt.Errorf("server ended the stream: %w", catalog.ErrShutdown)
	case frameCopyDone, frameReady:
		return nil, fmt.Errorf("server ended the stream: %w", io.EOF)
	}
	return nil, fmt.Errorf("%w: frame %q", errProtocol, kind)
}

// ServerError is the error with which the server ended the stream.
type ServerError struct {
	// Within is the commit position of the transaction that was being sent; 0
	// for none.
	Within pg.LSN
	Err    error
}

// Error implements error.
func (e *ServerError) Error() string { return "server ended the stream: " + e.Err.Error() }

// Unwrap returns the server's own error.
func (e *ServerError) Unwrap() error { return e.Err }

// within is the commit position of the partly arrived transaction.
func (s *Stream) within() pg.LSN {
	if !s.decoder.open {
		return 0
	}
	return s.decoder.msg.Row.Position.CommitLSN
}

// walDataHeader is start, end and send time of an XLogData message.
const walDataHeader = 24

// unwanted judges a frame by the head; see frameReader.
func (s *Stream) unwanted(kind byte, head []byte) bool {
	return kind == frameCopyData && head[0] == pglogrepl.XLogDataByteID && s.decoder.unwanted(head[1+walDataHeader:])
}

func (s *Stream) walData(b []byte) (*Message, error) {
	if len(b) < walDataHeader {
		return nil, fmt.Errorf("XLogData: %w", errShort)
	}
	s.at = pg.LSN(binary.BigEndian.Uint64(b))
	msg, err := s.decoder.decode(b[walDataHeader:])
	if err != nil {
		return nil, err
	}
	switch {
	case msg == nil:
	case msg.Kind == Commit:
		s.received.Store(max(s.received.Load(), uint64(msg.End)))
	case msg.Kind == LogicalMessage && msg.NonTransactional:
		s.received.Store(max(s.received.Load(), uint64(msg.Row.Position.CommitLSN)))
	}
	return msg, nil
}

// keepalive is a position at which nothing is left to send, unless it arrives
// within a transaction.
func (s *Stream) keepalive(b []byte) (*Message, error) {
	if len(b) < 17 {
		return nil, fmt.Errorf("keepalive: %w", errShort)
	}
	end := pg.LSN(binary.BigEndian.Uint64(b))
	if replyRequested := b[16] != 0; replyRequested {
		s.status.poke()
	} else {
		sent := time.Duration(binary.BigEndian.Uint64(b[8:])) * time.Microsecond
		s.heard.answer(sent, s.requested, lease.Now())
	}
	if s.decoder.open {
		return nil, nil
	}
	s.received.Store(max(s.received.Load(), uint64(end)))
	s.decoder.msg.Kind = Keepalive
	s.decoder.msg.End = end
	return &s.decoder.msg, nil
}

func serverError(body []byte) error {
	var e pgproto3.ErrorResponse
	if err := e.Decode(body); err != nil {
		return fmt.Errorf("error response: %w", err)
	}
	return catalog.Classify(pgconn.ErrorResponseToPgError(&e))
}

func serverNotice(body []byte) error {
	var n pgproto3.NoticeResponse
	if err := n.Decode(body); err != nil {
		return fmt.Errorf("notice response: %w", err)
	}
	return catalog.NoticeError((*pgconn.Notice)(pgconn.ErrorResponseToPgError((*pgproto3.ErrorResponse)(&n))))
}
