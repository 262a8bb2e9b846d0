package outbox

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// insertSQL are the statements of an insert. A single row, by far the most
// frequent case, has a statement of its own, which takes half the time.
type insertSQL struct{ one, many string }

// encoded is the first parameter where rows have other characters than ASCII:
// it makes the statement fail, with 22P02, on a connection of another encoding,
// which would store other characters. pgx leaves the encoding to the server,
// whose default is the database's.
const encoded = "(CASE WHEN pg_catalog.pg_client_encoding() IN ('UTF8', 'SQL_ASCII') THEN $1::text " +
	"ELSE pg_catalog.concat('the client_encoding of this connection is ', pg_catalog.pg_client_encoding()) END)"

// insertSQL returns the statements for the table. Parameters of many are
// arrays, one for each column, in PostgreSQL's text form: the one all drivers
// pass on. A single text for any number of rows is a single prepared statement;
// multi-row VALUES would need one for each number. id is the first parameter.
func (t Table) insertSQL(payload PayloadType, id string) insertSQL {
	types := []string{"uuid", "text", "text", "text", payload.String(), "jsonb"}
	values := []string{"a", "b", "c", "d", "e", "f"}
	columns := t.columns()
	names := make([]string, len(columns))
	parameters := make([]string, len(columns))
	arrays := make([]string, len(columns))
	for i, column := range columns {
		names[i] = pgsql.Name(column)
		parameters[i] = fmt.Sprintf("$%d::%s", i+1, types[i])
		arrays[i] = parameters[i] + "[]"
	}
	parameters[0], arrays[0] = id+"::uuid", id+"::uuid[]"
	into := fmt.Sprintf("INSERT INTO %s (%s) ", t.quoted(), strings.Join(names, ", "))
	list := strings.Join(values[:len(columns)], ", ")
	return insertSQL{
		one: into + "VALUES (" + strings.Join(parameters, ", ") + ")",
		many: into + "SELECT " + list + " FROM unnest(" + strings.Join(arrays, ", ") + ")" +
			" WITH ORDINALITY AS events (" + list + ", position) ORDER BY position",
	}
}

// insertRows inserts rows with a single statement.
func (w *Writer) insertRows(ctx context.Context, tx Tx, rows []row) error {
	var (
		insert    = w.insert
		statement string
		args      []any
	)
	if !ascii(rows) {
		insert = w.insertEncoded
	}
	if len(rows) == 1 {
		statement, args = insert.one, w.values(&rows[0])
	} else {
		statement = insert.many
		args = w.arrays(rows)
	}
	if w.opts.Table.NoHeaders {
		args = args[:len(args)-1]
	}
	if err := tx.exec(ctx, statement, args...); err != nil {
		return explain(fmt.Errorf("insert events into %s: %w", w.opts.Table.quoted(), err))
	}
	return nil
}

// ascii tells whether the rows have no other characters. Bytes are none.
func ascii(rows []row) bool {
	for i := range rows {
		r := &rows[i]
		if !plain(r.aggregateType) || !plain(r.aggregateID) || !plain(r.typ) || !plain(r.payload) || !plain(r.headers) {
			return false
		}
	}
	return true
}

func plain[T string | []byte](text T) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// values are the parameters for a single row. Bytes would become bytea in the
// hands of a driver, hence the strings.
func (w *Writer) values(r *row) []any {
	var payload, headers any
	switch {
	case r.payload == nil:
	case w.opts.Payload == Bytes:
		payload = r.payload
	default:
		payload = string(r.payload)
	}
	if r.headers != nil {
		headers = string(r.headers)
	}
	return []any{r.id.String(), r.aggregateType, r.aggregateID, r.typ, payload, headers}
}

// arrays are the parameters for many rows.
func (w *Writer) arrays(rows []row) []any {
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
	return []any{ids.String(), aggregateTypes.String(), aggregateIDs.String(), types.String(), payloads.String(), headers.String()}
}
