package poll

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/nearest"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Order is the order of the rows of a single poll, and its reliability.
type Order struct {
	// Columns are sorted by, in this order.
	Columns []string
	Kind    OrderKind
	// unique: no two rows are equal, so no tie has to be broken.
	unique bool
	blocks string // of OrderBlocks: the sequence, quoted
}

// OrderKind is the source of the order column's values.
type OrderKind uint8

// The kinds of Order.
const (
	// OrderSequence: a sequence, at the insert. Transactions of a key taking turns
	// are in commit order.
	OrderSequence OrderKind = iota + 1
	// OrderInsertTime: the clock at the insert. The same, unless the clock is set
	// back.
	OrderInsertTime
	// OrderTransactionTime: the clock at the transaction's beginning, perhaps before
	// a wait for a turn.
	OrderTransactionTime
	// OrderBlocks: a sequence handing out blocks of values, to each session or to
	// each instance of the application.
	OrderBlocks
	// OrderUnknown: values set by the application.
	OrderUnknown
)

// OIDs of built-in types (PostgreSQL's pg_type.dat).
const (
	typeBool        = 16
	typeInt8        = 20
	typeInt2        = 21
	typeInt4        = 23
	typeTimestamp   = 1114
	typeTimestamptz = 1184
)

// column is a column in the catalogs.
type column struct {
	name     string
	oid      uint32
	notNull  bool
	identity bool
	def      string // the default's expression
	unique   bool   // has a unique index of its own
	blocks   string // the column's sequence, if with a cache or increment other than 1; else ""
}

func (c column) integer() bool { return c.oid == typeInt2 || c.oid == typeInt4 || c.oid == typeInt8 }
func (c column) boolean() bool { return c.oid == typeBool }
func (c column) time() bool    { return c.oid == typeTimestamp || c.oid == typeTimestamptz }
func (c column) sequence() bool {
	return c.integer() && (c.identity || strings.HasPrefix(c.def, "nextval("))
}

// zone is the time zone of the default's values in a column without time zone: the
// server's, or "" if UTC, or if of no matter.
func (c column) zone(ctx context.Context, conn *pgx.Conn) (zone string, err error) {
	def := strings.ToLower(c.def)
	if c.oid != typeTimestamp || strings.Contains(def, "zone") || !strings.Contains(def, "now(") && !strings.Contains(def, "timestamp") {
		return "", nil
	}
	err = conn.QueryRow(ctx, `SELECT CASE WHEN now()::timestamp <> now() AT TIME ZONE 'UTC' THEN current_setting('TimeZone') ELSE '' END`).Scan(&zone)
	return zone, err
}

// kind is the kind of an order by the column.
func (c column) kind() OrderKind {
	def := strings.ToLower(c.def)
	switch {
	case c.sequence() && c.blocks != "":
		return OrderBlocks
	case c.sequence():
		return OrderSequence
	case c.time() && strings.Contains(def, "clock_timestamp"):
		return OrderInsertTime
	case c.time() && (strings.Contains(def, "now(") || strings.Contains(def, "current_timestamp") || strings.Contains(def, "transaction_timestamp")):
		return OrderTransactionTime
	}
	return OrderUnknown
}

// sequenceNames are looked for first among columns filled by a sequence, createdNames
// among columns with a time.
var (
	sequenceNames = []string{"seq", "sequence", "position"}
	createdNames  = []string{"created_at", "createdat", "occurred_at"}
)

// columns are a table's.
type columns []column

func (cs columns) find(name string) (column, bool) {
	i := slices.IndexFunc(cs, func(c column) bool { return c.name == name })
	if i < 0 {
		return column{}, false
	}
	return cs[i], true
}

// first returns the first suitable column among names.
func (cs columns) first(names []string, suits func(column) bool) (column, bool) {
	for _, name := range names {
		if c, ok := cs.find(name); ok && suits(c) {
			return c, true
		}
	}
	return column{}, false
}

// chooseOrder returns the configured order or else the table's best: an integer id, a
// column filled by a sequence, the time of creation.
func chooseOrder(opts Options, event transform.EventOptions, t pg.Table, cs columns) (Order, error) {
	if by := opts.OrderBy; len(by) > 0 {
		return configuredOrder(by, t, cs)
	}
	c, ok := cs.first([]string{idColumn(event)}, column.integer)
	if !ok {
		c, ok = cs.first(sequenceNames, column.sequence)
	}
	if i := slices.IndexFunc(cs, column.sequence); !ok && i >= 0 {
		c, ok = cs[i], true
	}
	if !ok {
		c, ok = cs.first(createdNames, column.time)
	}
	if !ok {
		return Order{}, failure.Configf("name columns in source.poll.order_by; or, so that rows are in commit order: "+AddSequenceSQL(t),
			"table %s has no column to order events by: neither an integer id, nor one filled by a sequence, nor created_at", t)
	}
	return Order{Columns: []string{c.name}, Kind: c.kind(), unique: c.unique, blocks: c.blocks}, nil
}

func configuredOrder(by []string, t pg.Table, cs columns) (Order, error) {
	o := Order{Columns: by, Kind: OrderUnknown}
	for i, name := range by {
		c, ok := cs.find(name)
		if !ok {
			return Order{}, failure.Configf(cs.suggest("source.poll.order_by", name), "source.poll.order_by: table %s has no column %q", t, name)
		}
		if i == 0 {
			o.Kind, o.blocks = c.kind(), c.blocks
		}
		o.unique = o.unique || c.unique
	}
	return o, nil
}

// suggest is the remedy for a missing column.
func (cs columns) suggest(key, name string) string {
	names := make([]string, len(cs))
	for i, c := range cs {
		names[i] = c.name
	}
	remedy := fmt.Sprintf("name columns of the table in %s (%s)", key, strings.Join(names, ", "))
	if near := nearest.To(name, names); near != "" {
		return fmt.Sprintf("did you mean %s? %s", near, remedy)
	}
	return remedy
}

func idColumn(event transform.EventOptions) string {
	if event.ID != "" {
		return event.ID
	}
	return "id"
}

// AddSequenceSQL adds a column with values rising with the inserts, without a rewrite
// of the table: the present rows get 0, and so come first.
func AddSequenceSQL(t pg.Table) string {
	seq := pg.Table{Schema: t.Schema, Name: t.Name + "_seq_seq"}.Quoted()
	return "ALTER TABLE " + t.Quoted() + " ADD COLUMN seq bigint NOT NULL DEFAULT 0; CREATE SEQUENCE " + seq + " OWNED BY " + t.Quoted() + ".seq; " +
		"ALTER TABLE " + t.Quoted() + " ALTER COLUMN seq SET DEFAULT nextval(" + pgsql.Literal(seq) + ");"
}

// sql is the ORDER BY list. Ties are broken by the command within the inserting
// transaction and then by the place in the table.
func (o Order) sql() string {
	parts := make([]string, len(o.Columns), len(o.Columns)+2)
	for i, name := range o.Columns {
		parts[i] = pgsql.Name(name)
	}
	if !o.unique {
		parts = append(parts, "cmin::text::bigint", "ctid")
	}
	return strings.Join(parts, ", ")
}
