package catalog

import (
	"context"
	"fmt"
	"time"
)

// ReadListing runs an operator's query in a read-only transaction and returns its columns'
// names and its rows as text, NULL as ""; more than most are an error. Names without a schema
// are the login's own or in public, as in psql. The query is canceled, and the connection
// closed, when ctx ends.
func ReadListing(ctx context.Context, url, query string, most int) (columns []string, rows [][]string, err error) {
	conn, err := Connect(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	defer Close(conn)
	begin := `BEGIN READ ONLY; SET LOCAL search_path TO "$user", public`
	if deadline, ok := ctx.Deadline(); ok { // the server may never hear of a cancellation
		begin += fmt.Sprintf("; SET LOCAL statement_timeout TO %d", max(1, time.Until(deadline).Milliseconds()))
	}
	if _, err := conn.PgConn().Exec(ctx, begin).ReadAll(); err != nil {
		return nil, nil, fmt.Errorf("begin: %w", err)
	}
	answer := conn.PgConn().ExecParams(ctx, query, nil, nil, nil, nil)
	for answer.NextRow() {
		if len(rows) == most {
			return nil, nil, fmt.Errorf("query: it has more than %d rows", most)
		}
		values := answer.Values()
		row := make([]string, len(values))
		for i, v := range values {
			row[i] = string(v)
		}
		rows = append(rows, row)
	}
	for _, f := range answer.FieldDescriptions() {
		columns = append(columns, f.Name)
	}
	if _, err := answer.Close(); err != nil {
		return nil, nil, fmt.Errorf("query: %w", err)
	}
	return columns, rows, nil
}
