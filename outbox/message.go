package outbox

import (
	"context"
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/internal/base/envelope"
)

// The statements writing messages. In emitMany the inner query fixes their
// order, and count spares the server to send a position for each. The fourth
// parameter of PostgreSQL 17's function, flush, has a default.
const (
	emitOne  = "SELECT pg_logical_emit_message(true, $1::text, $2::bytea)"
	emitMany = "SELECT count(pg_logical_emit_message(true, $1::text, content)) FROM " +
		"(SELECT content FROM unnest($2::bytea[]) WITH ORDINALITY AS events (content, position) ORDER BY position) AS ordered"
)

// emitRows emits rows with a single statement.
func (w *Writer) emitRows(ctx context.Context, tx Tx, rows []row) error {
	var (
		content  []byte // of the row at hand
		contents array
		err      error
	)
	for i := range rows {
		if content, err = w.envelope(content[:0], &rows[i]); err != nil {
			return err
		}
		if len(rows) > 1 {
			contents.bytea(content)
		}
	}
	if len(rows) == 1 {
		err = tx.exec(ctx, emitOne, w.opts.Prefix, content)
	} else {
		err = tx.exec(ctx, emitMany, w.opts.Prefix, contents.String())
	}
	if err != nil {
		return explain(fmt.Errorf("emit events as messages: %w", err))
	}
	return nil
}

// envelope appends the row's message to buf. The error, content of a gigabyte,
// is ruled out by the limits of Options.
func (w *Writer) envelope(buf []byte, r *row) ([]byte, error) {
	m := envelope.Message{
		ID:            []byte(r.id.String()),
		AggregateType: []byte(r.aggregateType),
		AggregateID:   []byte(r.aggregateID),
		Type:          []byte(r.typ),
		Payload:       r.payload,
		Headers:       r.headers,
		Binary:        w.opts.Payload == Bytes,
	}
	return m.Append(buf)
}
