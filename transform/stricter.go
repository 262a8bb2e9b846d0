package transform

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Stricter names rows of a table, bad events here and published by Debezium, each with
// the option for their publication.
func (r *Router) Stricter(rel *pg.Relation) (rows []string) {
	p := r.plan(rel)
	if p.unfit != nil {
		return nil
	}
	add := func(format string, args ...any) { rows = append(rows, fmt.Sprintf(format, args...)) }
	if r.event.NullKey == NullKeyBadEvent {
		add("NULL or empty %q (event.null_key)", p.key.name)
	}
	isJSON := p.payload.oid == pgtype.JSONOID || p.payload.oid == pgtype.JSONBOID
	if r.event.PayloadFormat == FormatJSONExpanded && r.event.InvalidJSON == InvalidJSONBadEvent && !isJSON && p.payload.oid != pgtype.ByteaOID {
		add("%q that begins like JSON and is none (event.invalid_json)", p.payload.name)
	}
	if p.object.present {
		add("%q that is no object of strings, numbers and bools, or names a reserved header (event.headers)", p.object.name)
	}
	if prefix, _ := r.topics.replacement.begins(); prefix == "" && !r.topics.underscores {
		add("%q whose topic begins with __ (route.topic)", p.route.name)
	}
	return rows
}
