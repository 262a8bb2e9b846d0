package transform

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Names of the headers the router adds by itself, beside event.type_header.
const (
	HeaderID            = "id"
	headerSchemaVersion = "schemaVersion"
	headerTraceparent   = "traceparent"
	HeaderLSN           = "cdc-lsn" // of the commit
	HeaderSeq           = "cdc-seq" // in the transaction
	HeaderXID           = "cdc-xid"
	HeaderTime          = "cdc-time" // of the commit
	headerTotal         = "cdc-tx-total"
	HeaderAsked         = "cdc-timestamp" // the record's, if it has another
	HeaderRepair        = "cdc-repair"    // of a record published by repair
	HeaderReplay        = "cdc-replay"    // of a record published by replay
	HeaderRedrive       = "cdc-redrive"   // of a record published by dead-letters redrive
)

// Header returns the value of the first header of the name, which may be nil; ok is
// false where there is none.
func Header(headers []kgo.RecordHeader, name string) (value []byte, ok bool) {
	for _, h := range headers {
		if h.Key == name {
			return h.Value, true
		}
	}
	return nil, false
}

// builtInHeaders is their number, at most.
const builtInHeaders = 9

func isPositionHeader(name string) bool {
	return name == HeaderLSN || name == HeaderSeq || name == HeaderXID || name == HeaderTime || name == headerTotal || name == HeaderAsked
}

// OfPublication tells whether the header is of a publication, not of the event: the
// position in the log, the time, or the mark of a command.
func OfPublication(name string) bool {
	return isPositionHeader(name) || name == HeaderRepair || name == HeaderReplay || name == HeaderRedrive
}

// maxHeaderBytes bounds a record's headers, names and values together. Kafka
// has no limit but the record's; consumers and proxies holding headers in
// memory have one, and no outbox has a good reason to come near.
const maxHeaderBytes = 256 << 10

// headers appends the record's headers to room: Debezium's context, id, event type, schema version,
// trace context, the headers column's, the additional ones, the position.
func (b *builder) headers(room []kgo.RecordHeader) {
	p, r := b.plan, b.router
	if n := len(r.context) + p.headerCount; n > cap(room) {
		room = make([]kgo.RecordHeader, 0, n)
	}
	b.event.Record.Headers = room
	b.event.Record.Headers = append(b.event.Record.Headers, r.context...)
	b.event.Record.Headers = append(b.event.Record.Headers, kgo.RecordHeader{Key: HeaderID, Value: b.event.ID})
	if p.eventType.present {
		b.header(p.eventType, r.event.TypeHeader)
	}
	if p.version.present && r.event.Compat != CompatDebezium {
		b.header(p.version, headerSchemaVersion)
	}
	b.objectHeaders(b.trace())
	for _, h := range p.headers {
		b.header(h.column, h.alias)
	}
	b.span()
	b.cloudEvent()
	if r.event.PositionHeaders {
		lsn, xid, at := r.tx.of(b.event)
		b.event.Record.Headers = append(b.event.Record.Headers,
			kgo.RecordHeader{Key: HeaderLSN, Value: lsn},
			kgo.RecordHeader{Key: HeaderSeq, Value: sequence(b.event.Position.Seq)},
			kgo.RecordHeader{Key: HeaderXID, Value: xid})
		if at != nil {
			b.event.Record.Headers = append(b.event.Record.Headers, kgo.RecordHeader{Key: HeaderTime, Value: at})
		}
	}
	b.checkHeaders()
}

// header appends the column's text under the name; NULL is a null value.
func (b *builder) header(c column, name string) {
	value := b.form(c, connectHeader)
	if !c.validText(value) {
		b.reject(ReasonInvalidUTF8, fmt.Errorf("header %s: column %q is not valid UTF-8", name, c.name))
	}
	b.event.Record.Headers = append(b.event.Record.Headers, kgo.RecordHeader{Key: name, Value: value})
}

// trace appends the trace context of the tracing column. trace reports whether
// the record has a traceparent, now or from an additional column.
func (b *builder) trace() (traced bool) {
	v := b.get(b.plan.tracing)
	if v.Kind == pg.Null {
		return b.plan.traced
	}
	parent := traceparent(v.Data)
	if parent == nil {
		b.warn(WarningNoTrace)
		return false
	}
	b.event.Record.Headers = append(b.event.Record.Headers, kgo.RecordHeader{Key: headerTraceparent, Value: parent})
	if state := tracestate(v.Data); state != nil {
		b.event.Record.Headers = append(b.event.Record.Headers, kgo.RecordHeader{Key: headerTracestate, Value: state})
	}
	return true
}

func (b *builder) checkHeaders() {
	if n := cap(b.event.Record.Headers); n > builtInHeaders {
		b.event.made += n * headerMemory
	}
	size := 0
	for _, h := range b.event.Record.Headers {
		size += len(h.Key) + len(h.Value)
	}
	if size > maxHeaderBytes {
		b.reject(ReasonHeadersTooLarge, fmt.Errorf("the headers have %d bytes, more than %d", size, maxHeaderBytes))
	}
	if id := b.plan.id; !id.validText(b.event.ID) {
		b.reject(ReasonInvalidUTF8, fmt.Errorf("header %s: column %q is not valid UTF-8", HeaderID, id.name))
	}
}

// transactionHeaders formats the values all rows of a transaction share once.
// Their bytes are never written again.
type transactionHeaders struct {
	commit           pg.LSN
	id               uint32
	time             time.Time
	lsn, xid, timeAt []byte // timeAt is nil for the zero time
	second           secondText
}

// transactionBytes is enough for the three values.
const transactionBytes = len("FFFFFFFF/FFFFFFFF") + len("4294967295") + len("2026-01-02T15:04:05.000000Z")

func (t *transactionHeaders) of(ev *Event) (lsn, xid, at []byte) {
	if commit := ev.Position.CommitLSN; t.lsn == nil || t.commit != commit || t.id != ev.XID || !t.time.Equal(ev.CommitTime) {
		t.commit, t.id, t.time = commit, ev.XID, ev.CommitTime
		t.lsn = pg.AppendLSN(make([]byte, 0, transactionBytes), commit)
		t.xid = strconv.AppendUint(t.lsn[len(t.lsn):], uint64(ev.XID), 10)
		t.timeAt = nil
		if !t.time.IsZero() {
			t.timeAt = t.second.append(t.xid[len(t.xid):], t.time)
		}
		t.lsn, t.xid = slices.Clip(t.lsn), slices.Clip(t.xid)
	}
	return t.lsn, t.xid, t.timeAt
}

// appendTime writes a time as the headers have it: in UTC, with microseconds,
// so texts sort as times do.
func appendTime(b []byte, t time.Time) []byte { return (&secondText{}).append(b, t) }

// secondText is the text of a second, up to the point. A second has many
// commits.
type secondText struct {
	unix int64
	text []byte
}

// append writes a time as appendTime does.
func (s *secondText) append(b []byte, t time.Time) []byte {
	if unix := t.Unix(); s.text == nil || unix != s.unix {
		s.unix, s.text = unix, t.UTC().AppendFormat(s.text[:0], "2006-01-02T15:04:05.")
	}
	b = append(b, s.text...)
	for micros, unit := t.Nanosecond()/1000, 100_000; unit > 0; unit /= 10 {
		b = append(b, '0'+byte(micros/unit%10))
	}
	return append(b, 'Z')
}

// sequences are the numbers below their count, formatted once.
var sequences = func() (out [256][]byte) {
	for i := range out {
		out[i] = strconv.AppendInt(nil, int64(i), 10)
	}
	return out
}()

func sequence(n uint32) []byte {
	if int(n) < len(sequences) {
		return sequences[n]
	}
	return strconv.AppendUint(nil, uint64(n), 10)
}
