package sink

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

var _ Sink = (*Stdout)(nil)

// Stdout is the Sink writing each event as a single line of JSON:
//
//	{"topic":…,"key":…,"value":…,"headers":[[key,value],…],"timestamp":…,
//	 "table":…,"id":…,"lsn":…,"seq":…,"xid":…}
//
// Keys, values and ids are strings, or null; bytes that are not UTF-8 are the
// object {"base64": …} instead. A dead letter is such a line with the members
// "reason" and "error" added. Durable means written to the writer, which gets
// whole lines in each call: others may write to it, too.
type Stdout struct {
	to  io.Writer
	buf bytes.Buffer
	enc *json.Encoder
}

// stdoutBytes is about how much is written at a time.
const stdoutBytes = 64 << 10

// NewStdout returns a Stdout writing to w. w stays the caller's to close.
func NewStdout(w io.Writer) *Stdout {
	s := &Stdout{to: w}
	s.enc = json.NewEncoder(&s.buf)
	s.enc.SetEscapeHTML(false)
	return s
}

// line is the JSON form of an event.
type line struct {
	Topic     string    `json:"topic"`
	Key       text      `json:"key"`
	Value     text      `json:"value"`
	Headers   []header  `json:"headers"`
	Timestamp time.Time `json:"timestamp"`
	Table     string    `json:"table"`
	ID        text      `json:"id"`
	LSN       string    `json:"lsn"`
	Seq       uint32    `json:"seq"`
	XID       uint32    `json:"xid"`

	Reason transform.Reason `json:"reason,omitempty"`
	Error  string           `json:"error,omitempty"`
}

// Deliver implements Sink. Deliver rejects nothing.
func (s *Stdout) Deliver(ctx context.Context, events []*transform.Event, _ Reject) error {
	for _, ev := range events {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := s.write(ev, nil); err != nil {
			return err
		}
	}
	return s.flush()
}

// DeadLetter implements Sink.
func (s *Stdout) DeadLetter(_ context.Context, ev *transform.Event, bad *transform.BadEvent) error {
	return errors.Join(s.write(ev, bad), s.flush())
}

// Close implements Sink.
func (s *Stdout) Close() {}

func (s *Stdout) write(ev *transform.Event, bad *transform.BadEvent) error {
	rec := &ev.Record
	l := line{
		Topic:     rec.Topic,
		Key:       rec.Key,
		Value:     rec.Value,
		Headers:   make([]header, len(rec.Headers)),
		Timestamp: ev.Time().UTC(),
		Table:     ev.Table,
		ID:        ev.ID,
		LSN:       ev.Position.CommitLSN.String(),
		Seq:       ev.Position.Seq,
		XID:       ev.XID,
	}
	for i, h := range rec.Headers {
		l.Headers[i] = header(h)
	}
	if bad != nil {
		l.Reason, l.Error = bad.Reason, bad.Err.Error()
	}
	if err := s.enc.Encode(&l); err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	if s.buf.Len() >= stdoutBytes {
		return s.flush()
	}
	return nil
}

func (s *Stdout) flush() error {
	defer s.buf.Reset()
	if _, err := s.buf.WriteTo(s.to); err != nil {
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EBADF) {
			return &failure.Error{Class: failure.Transient, Remedy: outputRemedy, Err: fmt.Errorf("%w: %w", ErrOutputGone, err)}
		}
		return &failure.Error{Class: failure.Transient, Remedy: spaceRemedy, Err: fmt.Errorf("write events: %w", err)}
	}
	return nil
}

// ErrOutputGone is wrapped by the error of a Stdout whose writer nobody reads
// any more. Only a new process has a new standard output.
var ErrOutputGone = errors.New("nobody reads standard output any more")

const spaceRemedy = "see that what standard output leads to can be written, then start again: nothing that was not written was confirmed"

const outputRemedy = "start it again with standard output connected to what reads it: nothing that was not written was confirmed"

// text is bytes that usually are text.
type text []byte

// MarshalJSON implements json.Marshaler.
func (t text) MarshalJSON() ([]byte, error) {
	switch {
	case t == nil:
		return []byte("null"), nil
	case utf8.Valid(t):
		return marshal(string(t))
	}
	return marshal(map[string]string{"base64": base64.StdEncoding.EncodeToString(t)})
}

// header is the pair [key, value].
type header kgo.RecordHeader

// MarshalJSON implements json.Marshaler.
func (h header) MarshalJSON() ([]byte, error) { return marshal([2]any{h.Key, text(h.Value)}) }

// marshal is json.Marshal without the escapes for HTML.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), err
}
