package transform

import (
	"errors"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Router turns outbox rows into events, for any number of outbox tables, each
// with its own columns. The caches have no locks: the methods must be called
// from a single goroutine at a time.
type Router struct {
	event   EventOptions
	routeBy string
	fields  []field
	// envelope is whether any field goes there.
	envelope bool
	// attributeFields are CloudEvents.Attributes; attributes is the memory of cloudEvent.
	attributeFields []attributeField
	attributes      []attribute
	topics          *topics
	context         []kgo.RecordHeader // see contextHeaders

	// plans holds the newest definition of each table, by OID; last is the plan
	// of the previous row.
	plans map[uint32]*plan
	last  *plan
	// expected are Expect's columns, by the table's OID.
	expected map[uint32][]string
	// described are the details of columns, by name and the table's OID.
	described map[uint32]map[string]pg.ColumnDetails
	// messages is for logical messages, without a table.
	messages messages

	tx     transactionHeaders
	names  interned
	moment moment
	shaper shaper
	// payload is the memory of a value beside its schema.
	payload []byte
	pool    sync.Pool // of *pooledEvent released
}

// New compiles the options. ev and route have passed the configuration's own
// validation; the faults New finds beyond that (regex, replacement, additional
// fields, header names) are returned all at once, joined, as errors of class
// failure.Config.
func New(ev EventOptions, route RouteOptions) (*Router, error) {
	fields, fieldsErr := parseFields(ev)
	attributes, attributesErr := parseAttributes(ev.CloudEvents)
	topics, topicsErr := newTopics(route)
	if err := errors.Join(fieldsErr, attributesErr, topicsErr); err != nil {
		return nil, err
	}
	r := &Router{
		event:           ev,
		routeBy:         route.By,
		fields:          fields,
		attributeFields: attributes,
		topics:          topics,
		context:         contextHeaders(ev),
		plans:           make(map[uint32]*plan),
		expected:        make(map[uint32][]string),

		described: make(map[uint32]map[string]pg.ColumnDetails),
		names:     make(interned),
	}
	for _, f := range fields {
		r.envelope = r.envelope || f.placement == placeEnvelope
	}
	return r, nil
}

// Bind checks that the table has every column the options need, of a usable
// type, and remembers where they are. Route binds by itself; Bind is for
// finding out before streaming. Bind returns everything that is wrong, joined,
// as errors of class failure.Config. Binding a table again is cheap.
func (r *Router) Bind(rel *pg.Relation) error {
	return r.plan(rel).unfit
}

// Expect has a table of this OID refused, from the next definition on, if it
// lacks one of the columns and no option says where to look, or that events do
// without. Detected names such columns.
func (r *Router) Expect(oid uint32, columns []string) {
	for _, name := range columns {
		if !slices.Contains(r.expected[oid], name) {
			r.expected[oid] = append(r.expected[oid], name)
		}
	}
}

// Describes tells whether the router wants a Describe of each new definition in a
// stream, where neither defaults nor NOT NULL are told.
func (r *Router) Describes() bool { return r.event.Compat == CompatDebezium }

// Describe has the catalogs' details of columns count for a table with the OID, from
// the next definition on.
func (r *Router) Describe(rel *pg.Relation) {
	details := make(map[string]pg.ColumnDetails, len(rel.Columns))
	for _, c := range rel.Columns {
		details[c.Name] = c.Details
	}
	r.described[rel.OID] = details
}

// Detected returns the table's columns that become headers although no option
// names them.
func (r *Router) Detected(rel *pg.Relation) []string { return r.plan(rel).detected }

// Needed returns the columns of the table required by Bind. An error is Bind's
// for the table as it is. Needed changes nothing and may be called at any time,
// from any goroutine.
func (r *Router) Needed(rel *pg.Relation) (names []string, err error) {
	if _, err := bind(rel, r.options(rel)); err != nil {
		return nil, err
	}
	for i, c := range rel.Columns {
		without := *rel
		without.Columns = slices.Delete(slices.Clone(rel.Columns), i, i+1)
		if _, err := bind(&without, r.options(rel)); err != nil {
			names = append(names, c.Name)
		}
	}
	return names, nil
}

// options are the options of Bind.
func (r *Router) options(rel *pg.Relation) options {
	table := pg.Table{Schema: rel.Namespace, Name: rel.Name}.String()
	return options{event: r.event, routeBy: r.routeBy, fields: r.fields, attributes: r.attributeFields, table: "table " + table}
}

// KeyColumn returns the name of the column the key of the table's events is
// taken from. The errors are Bind's.
func (r *Router) KeyColumn(rel *pg.Relation) (string, error) {
	p := r.plan(rel)
	return p.key.name, p.unfit
}

// IdentityColumns returns the names of the columns that the event's id, key and
// topic are taken from. The errors are Bind's.
func (r *Router) IdentityColumns(rel *pg.Relation) ([]string, error) {
	p := r.plan(rel)
	return []string{p.id.name, p.key.name, p.route.name}, p.unfit
}

// plan returns the plan for rel. A relation with a known OID and another
// address is a new definition of the table and takes the old one's place.
func (r *Router) plan(rel *pg.Relation) *plan {
	if r.last != nil && r.last.rel == rel {
		return r.last
	}
	p := r.plans[rel.OID]
	if p == nil || p.rel != rel {
		o := r.options(rel)
		o.expected, o.described = r.expected[rel.OID], r.described[rel.OID]
		p, _ = bind(rel, o) // the plan has the error
		p.table = pg.Table{Schema: rel.Namespace, Name: rel.Name}.String()
		r.plans[rel.OID] = p
	}
	r.last = p
	return p
}
