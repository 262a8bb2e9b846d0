package outbox

import (
	"context"
	"fmt"
	"strings"
)

// insertSQL is the statement that inserts any number of rows. Its parameters are
// arrays, one for each column, in PostgreSQL's text form: the one that all
// drivers pass on. One text for any number of rows is one prepared statement;
// multi-row VALUES would need one for each number.
func (t Table) insertSQL(payload PayloadType) string {
	types := []string{"uuid", "text", "text", "text", payload.String(), "jsonb"}
	columns := t.columns()
	names := make([]string, len(columns))
	arrays := make([]string, len(columns))
	for i, column := range columns {
		names[i] = quote(column)
		arrays[i] = fmt.Sprintf("$%d::%s[]", i+1, types[i])
	}
	values := []string{"a", "b", "c", "d", "e", "f"}[:len(columns)]
	list := strings.Join(values, ", ")
	return fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM unnest(%s) WITH ORDINALITY AS events (%s, position) ORDER BY position",
		t.quoted(), strings.Join(names, ", "), list, strings.Join(arrays, ", "), list)
}

// insertRows runs the statement for rows.
func (w *Writer) insertRows(ctx context.Context, tx Tx, rows []row) error {
	var ids, aggregateTypes, aggregateIDs, types, payloads, headers array
	for i := range rows {
		r := &rows[i]
		ids.plain(r.id.String())
		aggregateTypes.text(r.aggregateType)
		aggregateIDs.text(r.aggregateID)
		types.text(r.typ)
		if w.opts.Payload == Bytes {
			payloads.bytea(r.payload)
		} else {
			payloads.nullable(r.payload)
		}
		headers.nullable(r.headers)
	}
	args := []any{ids.String(), aggregateTypes.String(), aggregateIDs.String(), types.String(), payloads.String()}
	if !w.opts.Table.NoHeaders {
		args = append(args, headers.String())
	}
	if err := tx.exec(ctx, w.insert, args...); err != nil {
		return explain(fmt.Errorf("insert events into %s: %w", w.opts.Table.quoted(), err))
	}
	return nil
}
