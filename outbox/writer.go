package outbox

import (
	"context"

	"github.com/google/uuid"
)

// DefaultMaxBytes is the size of an event a Kafka with the default settings
// takes: max.message.bytes is 1 MiB for a whole batch, of which the rest is
// left to Kafka's own fields and the connector's headers.
const DefaultMaxBytes = 1_000_000

// DefaultPrefix is the prefix of messages, here and in the connector.
const DefaultPrefix = "outbox"

// Options say how a Writer writes. The zero value of each field is the default.
type Options struct {
	// Table is where Write inserts. The default is outbox, found through the
	// search path, with Debezium's column names.
	Table Table
	// Prefix is the prefix of Emit's messages, the connector's
	// source.message_prefix: 1 to 48 printable ASCII characters without spaces.
	// The default is outbox.
	Prefix string
	// Payload is the type of payloads and of their column. The default is JSONB.
	Payload PayloadType
	// MaxBytes bounds payload, aggregate id and headers of an event together. The
	// default is DefaultMaxBytes. A payload counts in PostgreSQL's form, which is
	// published: jsonb has a space after each colon and comma, and 1e3 as 1000.
	MaxBytes int
	// ContextHeaders returns headers for all events of a call, such as the trace
	// context: see package tracing. An event's own headers prevail. ContextHeaders
	// must be safe for concurrent use; the map is only read. The default is none.
	ContextHeaders func(ctx context.Context) map[string]string
}

// Writer writes events to one place. Make one with New; the zero value has the
// default Options. It keeps no transaction and no event, and is safe for
// concurrent use.
type Writer struct {
	opts                  Options
	insert, insertEncoded insertSQL
}

// New returns a Writer, or an error naming each option that cannot be.
func New(opts Options) (*Writer, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	return newWriter(opts), nil
}

func newWriter(complete Options) *Writer {
	return &Writer{
		opts:          complete,
		insert:        complete.Table.insertSQL(complete.Payload, "$1"),
		insertEncoded: complete.Table.insertSQL(complete.Payload, encoded),
	}
}

// made returns w, or the default writer for the zero value.
func (w *Writer) made() *Writer {
	if w.opts.MaxBytes == 0 {
		return standard
	}
	return w
}

// Write inserts the events into the table, in the order given, and returns
// their ids in that order. An InvalidError came before the database was asked;
// any other error leaves the transaction failed. Without events nothing
// happens.
func (w *Writer) Write(ctx context.Context, tx Tx, events ...Event) ([]uuid.UUID, error) {
	if tx.exec == nil {
		return nil, errNoTx
	}
	w = w.made()
	rows, err := w.rows(ctx, events, false)
	if err != nil {
		return nil, err
	}
	return send(rows, func(rows []row) error { return w.insertRows(ctx, tx, rows) })
}

// Emit writes the events as transactional logical messages, in the order given,
// and returns their ids in that order. No table is touched: a message exists in
// the WAL only, and is read by a connector in message mode with the same
// prefix. A message written before the slot's creation is lost, unnoticed. Emit
// is otherwise like Write.
func (w *Writer) Emit(ctx context.Context, tx Tx, events ...Event) ([]uuid.UUID, error) {
	if tx.exec == nil {
		return nil, errNoTx
	}
	w = w.made()
	rows, err := w.rows(ctx, events, true)
	if err != nil {
		return nil, err
	}
	return send(rows, func(rows []row) error { return w.emitRows(ctx, tx, rows) })
}

// send gives rows to statement, as many at a time as a statement may have, and
// returns their ids.
func send(rows []row, statement func([]row) error) ([]uuid.UUID, error) {
	ids := make([]uuid.UUID, len(rows))
	for i := range rows {
		ids[i] = rows[i].id
	}
	for len(rows) > 0 {
		n := chunk(rows)
		if err := statement(rows[:n]); err != nil {
			return nil, err
		}
		rows = rows[n:]
	}
	return ids, nil
}

// Limits of a single statement. More events gain nothing; more bytes would be
// held in memory several times, here, in the driver and in the server.
const (
	chunkEvents = 1000
	chunkBytes  = 4 << 20
)

// chunk returns how many of rows, at least one, make up the next statement.
func chunk(rows []row) int {
	size := 0
	for i := range rows {
		size += rows[i].size()
		if i > 0 && (i == chunkEvents || size > chunkBytes) {
			return i
		}
	}
	return len(rows)
}
