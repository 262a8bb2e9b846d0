package transform

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/nearest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Column names looked for where an option names none: Debezium's first, then
// the snake-case ones of common tutorials.
var (
	idNames      = []string{"id"}
	keyNames     = []string{"aggregateid", "aggregate_id"}
	routeNames   = []string{"aggregatetype", "aggregate_type"}
	typeNames    = []string{"type", "event_type"}
	payloadNames = []string{"payload"}
	tracingNames = []string{"tracingspancontext", "traceparent"}
	objectNames  = []string{"headers"}
)

// plan says where in a table's rows the parts of a record are. The columns
// eventType, timestamp, version, tracing, partition and object may be absent.
type plan struct {
	rel   *pg.Relation
	table string // for events: schema.table, or the messages' name

	id, key, route, payload     column
	eventType, timestamp        column
	version, tracing, partition column
	object                      column // a JSON object of headers
	traced                      bool   // an additional column is the traceparent
	headers, envelope           []namedColumn
	detected                    []string   // the columns no option names
	headerCount                 int        // the most a row can have, without object's
	cloud                       *cloudPlan // nil without CloudEvents

	schemaName  string // begins the name of an envelope's schema
	schemaBytes int    // of the last value's schema
	perMilli    int64  // Debezium's units of timestamp in a millisecond; 0: timestamp is ours

	unfit error // why no row of the table becomes an event; the columns are then those found
}

// namedColumn is an additional column with the name in the record.
type namedColumn struct {
	column
	alias string
}

// options are the options with column names.
type options struct {
	event      EventOptions
	routeBy    string
	fields     []field
	attributes []attributeField
	table      string // the table's name in errors: "table public.outbox"
	// expected are columns detected before, and must not be gone.
	expected []string
	// described are details of columns beyond the relation's.
	described map[string]pg.ColumnDetails
}

// binder looks up columns and collects the faults.
type binder struct {
	rel   *pg.Relation
	table string
	errs  []error

	expected []string
	detected []string // optional columns no option names
	handling Handling

	described map[string]pg.ColumnDetails
}

// bind makes the plan of a table. With an error, its unfit, the plan serves for
// dead letters only.
func bind(rel *pg.Relation, o options) (*plan, error) {
	b := &binder{rel: rel, table: o.table, expected: o.expected, handling: o.event.Debezium, described: o.described}
	p := &plan{
		rel:       rel,
		id:        b.required("event.id", o.event.ID, idNames),
		key:       b.required("event.key", o.event.Key, keyNames),
		route:     b.required("route.by", o.routeBy, routeNames),
		payload:   b.required("event.payload", o.event.Payload, payloadNames),
		timestamp: b.optional("event.timestamp", o.event.Timestamp, nil),
	}
	b.wantType("event.timestamp", p.timestamp, "timestamptz, timestamp or int8 (milliseconds)",
		pgtype.TimestamptzOID, pgtype.TimestampOID, pgtype.Int8OID)
	b.fields(p, o.fields, o.event.AdditionalMissing == MissingIgnore)
	b.builtInHeaders(p, o.event)
	p.object = b.object(o.event, o.fields)
	if o.event.Compat == CompatDebezium {
		b.convert(p, o.event)
	}
	p.headerCount = len(p.headers) + builtInHeaders
	if o.event.CloudEvents.On() {
		p.cloud = b.cloud(p, o)
		p.headerCount += mostAttributes + len(p.cloud.extensions)
	}
	p.detected = b.detected
	p.unfit = errors.Join(b.errs...)
	return p, p.unfit
}

// builtInHeaders finds the columns of the headers the router adds by itself,
// except for names taken by additional columns.
func (b *binder) builtInHeaders(p *plan, ev EventOptions) {
	taken := func(name string) bool {
		return slices.ContainsFunc(p.headers, func(h namedColumn) bool { return h.alias == name })
	}
	if ev.TypeHeader != "" && !taken(ev.TypeHeader) {
		p.eventType = b.detect("event.type", ev.Type, typeNames, `set event.type_header to "" for events without a type`)
	}
	if !taken(headerSchemaVersion) {
		p.version = b.optional("event.schema_version", ev.SchemaVersion, nil)
	}
	if p.traced = taken(headerTraceparent); !p.traced && ev.Tracing != HeadersNone {
		p.tracing = b.detect("event.tracing", ev.Tracing, tracingNames, "set event.tracing to "+HeadersNone+" for events without it")
	}
}

// object finds the headers column. A column that is only detected must be of a
// JSON type, and not placed otherwise by the configuration.
func (b *binder) object(ev EventOptions, fields []field) column {
	switch ev.Headers {
	case HeadersNone:
		return column{}
	case "":
		c, _ := b.find(objectNames[0])
		placed := slices.ContainsFunc(fields, func(f field) bool { return f.column == c.name })
		if placed {
			return column{}
		}
		if c.oid != pgtype.JSONOID && c.oid != pgtype.JSONBOID {
			c = column{}
		}
		return b.expect("event.headers", c, objectNames, "set event.headers to "+HeadersNone+" for events without them", pgtype.JSONOID, pgtype.JSONBOID)
	}
	c := b.optional("event.headers", ev.Headers, nil)
	b.wantType("event.headers", c, "json or jsonb", pgtype.JSONOID, pgtype.JSONBOID)
	return c
}

func (b *binder) fields(p *plan, fields []field, ignoreMissing bool) {
	for _, f := range fields {
		c, ok := b.find(f.column)
		if !ok {
			if !ignoreMissing {
				b.missing("event.additional", f.column, ", or set event.additional_missing to ignore")
			}
			continue
		}
		switch f.placement {
		case placeHeader:
			p.headers = append(p.headers, namedColumn{c, f.alias})
		case placeEnvelope:
			p.envelope = append(p.envelope, namedColumn{c, f.alias})
		case placePartition:
			b.wantType("event.additional", c, "int4, int2 or int8 to be a partition", pgtype.Int4OID, pgtype.Int2OID, pgtype.Int8OID)
			p.partition = c
		}
	}
}

// required returns the option's column or, without an option, the first of
// names in the table.
func (b *binder) required(key, configured string, names []string) column {
	if configured != "" {
		return b.optional(key, configured, nil)
	}
	c := b.optional(key, "", names)
	if !c.present && !b.unsent(key, names, "") {
		b.errs = append(b.errs, failure.Configf(
			b.suggest(key, names...),
			"%s has no column %s, and %s names no other", b.table, quotedOr(names), key))
	}
	return c
}

// optional is required without an error where the option names no column and
// the table has none of names.
func (b *binder) optional(key, configured string, names []string) column {
	if configured != "" {
		c, ok := b.find(configured)
		if !ok {
			b.missing(key, configured, "")
		}
		return c
	}
	for _, name := range names {
		if c, ok := b.find(name); ok {
			return c
		}
	}
	return column{}
}

// detect is optional. A column detected before must not be gone: events would
// lose a header without a word. without is the configuration that accepts the
// lack.
func (b *binder) detect(key, configured string, names []string, without string) column {
	c := b.optional(key, configured, names)
	if configured != "" {
		return c
	}
	return b.expect(key, c, names, without)
}

// expect notes the detected column, or the error that one of names is gone, or
// is in the table and not in the stream. Only columns of the types count; none
// are all.
func (b *binder) expect(key string, c column, names []string, without string, oids ...uint32) column {
	if c.present {
		b.detected = append(b.detected, c.name)
		return c
	}
	b.unsent(key, names, ", or "+without, oids...)
	for _, name := range names {
		if slices.Contains(b.expected, name) {
			b.errs = append(b.errs, failure.Configf(b.suggest(key)+", or "+without,
				"%s: %s had column %q, and has it no longer", key, b.table, name))
		}
	}
	return c
}

// find compares names as the catalog has them: case matters.
func (b *binder) find(name string) (column, bool) {
	for i, c := range b.rel.Columns {
		if c.Name == name {
			return column{present: true, index: i, oid: c.Type, name: name}, true
		}
	}
	return column{}, false
}

// unsent adds the error of the first of the names that is a column of the
// table, of one of the types (none are all), but not in the stream. It reports
// whether there is one.
func (b *binder) unsent(key string, names []string, otherwise string, oids ...uint32) bool {
	for _, name := range names {
		for _, c := range b.rel.Unsent {
			if c.Name == name && (len(oids) == 0 || slices.Contains(oids, c.Type)) {
				b.errs = append(b.errs, failure.Configf(c.Remedy+otherwise, "%s: column %q of %s is not in the stream: %s", key, name, b.table, c.Because))
				return true
			}
		}
	}
	return false
}

func (b *binder) missing(key, name, otherwise string) {
	if b.unsent(key, []string{name}, otherwise) {
		return
	}
	b.errs = append(b.errs, failure.Configf(b.suggest(key, name)+otherwise,
		"%s: %s has no column %q", key, b.table, name))
}

func (b *binder) wantType(key string, c column, want string, oids ...uint32) {
	if c.present && !slices.Contains(oids, c.oid) {
		b.errs = append(b.errs, failure.Configf("name a column of one of these types",
			"%s: column %q of %s is of the type with OID %d; it must be %s", key, c.name, b.table, c.oid, want))
	}
}

// suggest is the remedy for a missing column.
func (b *binder) suggest(key string, names ...string) string {
	columns := make([]string, len(b.rel.Columns))
	for i, c := range b.rel.Columns {
		columns[i] = c.Name
	}
	remedy := fmt.Sprintf("name a column of the table in %s (%s)", key, strings.Join(columns, ", "))
	for _, name := range names {
		if near := nearest.To(name, columns); near != "" {
			return fmt.Sprintf("did you mean %s? %s", near, remedy)
		}
	}
	return remedy
}

// quotedOr returns names as "a" or "b".
func quotedOr(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(quoted, " or ")
}
