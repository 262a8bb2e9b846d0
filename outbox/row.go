package outbox

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/google/uuid"
)

// row is a valid event in written form.
type row struct {
	id                              uuid.UUID
	aggregateType, aggregateID, typ string
	payload                         []byte // nil is NULL; shared with the caller
	headers                         []byte // a JSON object of strings; nil is NULL
}

// size is the row's part of a statement, roughly.
func (r *row) size() int {
	return len(r.id) + len(r.aggregateType) + len(r.aggregateID) + len(r.typ) + len(r.payload) + len(r.headers)
}

// rows checks the events and completes them: ids, encoded payloads, headers.
// The error is an InvalidError, or NewID's. A message is not a row.
func (w *Writer) rows(ctx context.Context, events []Event, message bool) ([]row, error) {
	if len(events) == 0 {
		return nil, nil
	}
	var shared map[string]string
	if w.opts.ContextHeaders != nil {
		shared = w.opts.ContextHeaders(ctx)
	}
	rows := make([]row, len(events))
	check := checker{opts: &w.opts, message: message}
	for i := range events {
		e := events[i]
		e.Headers = merge(shared, e.Headers)
		rows[i] = check.event(i, &e)
	}
	if err := check.err(); err != nil {
		return nil, err
	}
	for i := range rows {
		if rows[i].id != uuid.Nil {
			continue
		}
		var err error
		if rows[i].id, err = NewID(); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// merge returns shared and own together; own prevails.
func merge(shared, own map[string]string) map[string]string {
	switch {
	case len(shared) == 0:
		return own
	case len(own) == 0:
		return shared
	}
	all := maps.Clone(shared)
	maps.Copy(all, own)
	return all
}

// encodeHeaders returns headers as a JSON object, with sorted names: the same
// headers are the same bytes.
func encodeHeaders(headers map[string]string) ([]byte, error) {
	if len(headers) == 0 {
		return nil, nil
	}
	return json.Marshal(headers)
}
