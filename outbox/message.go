package outbox

import (
	"context"
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/internal/envelope"
)

// emitSQL writes any number of messages. The inner query fixes their order, and
// count spares the server to send a position for each. The third parameter of
// PostgreSQL 17, flush, has a default.
const emitSQL = "SELECT count(pg_logical_emit_message(true, $1::text, content)) FROM " +
	"(SELECT content FROM unnest($2::bytea[]) WITH ORDINALITY AS events (content, position) ORDER BY position) AS ordered"

// emitRows runs the statement for rows.
func (w *Writer) emitRows(ctx context.Context, tx Tx, rows []row) error {
	var contents array
	for i := range rows {
		r := &rows[i]
		content, err := envelope.Encode(&envelope.Message{
			ID:            []byte(r.id.String()),
			AggregateType: []byte(r.aggregateType),
			AggregateID:   []byte(r.aggregateID),
			Type:          []byte(r.typ),
			Payload:       r.payload,
			Headers:       r.headers,
			Binary:        w.opts.Payload == Bytes,
		})
		if err != nil {
			return err // only with a limit of more than a gigabyte
		}
		contents.bytea(content)
	}
	if err := tx.exec(ctx, emitSQL, w.opts.Prefix, contents.String()); err != nil {
		return explain(fmt.Errorf("emit events as messages: %w", err))
	}
	return nil
}
