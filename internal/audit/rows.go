package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Rows are fetched in groups of so many rows and, but for a single row, bytes.
const (
	MostGroup  = 1000
	GroupBytes = 4 << 20
)

// Table is an outbox table.
type Table struct {
	Name     pg.Table
	Relation *pg.Relation
	Charset  *pg.Charset
	Identity []string // columns: id, key and topic
	Order    catalog.Order
	Time     string // the column with the time of a row; "" for none
	Zoned    bool   // the column has a zone
}

// ReadTable finds out how the rows of a table are compared. times are columns
// that may have the time of a row, the best first. several tells that the order
// is over more tables.
func ReadTable(ctx context.Context, conn *pgx.Conn, router *transform.Router, rel *pg.Relation, times []string, several bool) (*Table, error) {
	t := &Table{Name: pg.Table{Schema: rel.Namespace, Name: rel.Name}, Relation: rel}
	err := router.Bind(rel)
	if err == nil {
		t.Charset, err = catalog.ReadCharset(ctx, conn)
	}
	if err == nil {
		t.Identity, err = router.IdentityColumns(rel)
	}
	if err != nil {
		return nil, err
	}
	t.Time, t.Zoned = timeColumn(rel, times)
	t.Order, err = catalog.ReadOrder(ctx, conn, t.Name, t.Time, several)
	return t, err
}

// timeColumn is the first of the columns that the table has with a time, and
// whether the time has a zone.
func timeColumn(rel *pg.Relation, names []string) (name string, zoned bool) {
	for _, name := range names {
		for _, c := range rel.Columns {
			if c.Name == name && (c.Type == pgtype.TimestamptzOID || c.Type == pgtype.TimestampOID) {
				return name, c.Type == pgtype.TimestamptzOID
			}
		}
	}
	return "", true
}

// micros is the SQL expression of a row's time.
func (t *Table) micros() string {
	if t.Time == "" {
		return "NULL::int8"
	}
	return catalog.Micros(t.Time)
}

// Rows are the rows of tables in a snapshot. A single goroutine uses them; Count is
// for any.
type Rows struct {
	Conn     *pgx.Conn
	Snapshot string // the name of the exported snapshot
	// Router routes rows. The events have no position headers: only the log knows
	// the position of a row.
	Router *transform.Router
	// DeadLetters is the topic of events without a valid topic; "": there is none.
	DeadLetters string
	Audit       *Audit
	// Contents takes the contents of rows; nil: nobody asks.
	Contents *Contents
	Topics   *Topics
	Group    int // how many rows are fetched at once, at most

	// Nameless and Unrouted count rows without an id, and without a valid topic:
	// of these nothing is known.
	Nameless, Unrouted int64

	read   atomic.Int64
	leaves map[uint32]*Table // by the OID of the table that has the rows
}

// Count is the number of rows added.
func (r *Rows) Count() int64 { return r.read.Load() }

// Row is a row of a table, with its event. The event is valid during a call.
type Row struct {
	Event *transform.Event
	// Topic has the record of the event; "": it has no valid topic.
	Topic string
	Entry Entry // without a key and a topic
	// With Contents set: the row's transaction, the time of the commit in microseconds
	// since 1970 or NoTime, and whether the row would be a bad event.
	XID       uint32
	Committed int64
	Bad       bool

	table *Table
}

// Read calls fn with the rows of a table that fulfil the SQL condition; "" for all.
// Without Contents only the columns of the identity are read.
func (r *Rows) Read(ctx context.Context, t *Table, where string, fn func(*Row) error) error {
	only, xid := t.Identity, "NULL"
	if r.Contents != nil {
		only, xid = nil, "xmin"
	}
	return catalog.ReadRows(ctx, r.Conn, catalog.Snapshot{
		Name: r.Snapshot, Table: t.Name, Relation: t.Relation, Charset: t.Charset,
		Where: where, AnyOrder: true, Only: only,
		Also: append([]string{"tableoid::oid", "ctid", t.micros(), xid, "cmin::text::int8"}, t.Order.Numbers[:]...),
	}, func(row *pg.Row, also [][]byte) error {
		read := Row{table: t, Committed: NoTime}
		var err error
		if read.Entry.Place, err = place(also[0], also[1]); err != nil {
			return err
		}
		var numbers [3 + catalog.OrderNumbers]int64
		for i := range numbers {
			if numbers[i], err = number(also[2+i]); err != nil {
				return err
			}
		}
		read.Entry.At, read.XID, read.Entry.Command = numbers[0], uint32(numbers[1]), uint32(numbers[2])
		read.Entry.Order = [catalog.OrderNumbers]int64(numbers[3:])
		if t.Order.Exact {
			read.Committed = read.Entry.Order[0]
		}
		ev, routeErr := r.Router.Route(row)
		defer ev.Release()
		read.Event, read.Topic, read.Bad = ev, ev.Record.Topic, routeErr != nil
		if bad, ok := errors.AsType[*transform.BadEvent](routeErr); ok && (bad.Reason == transform.ReasonIllegalTopic || bad.Reason == transform.ReasonNullRoute) {
			read.Topic = r.DeadLetters // where else it could be
		}
		if r.leaves == nil {
			r.leaves = make(map[uint32]*Table)
		}
		r.leaves[read.Entry.Table] = t
		return fn(&read)
	})
}

// Add adds a row to the comparison.
func (r *Rows) Add(row *Row) (err error) {
	switch {
	case row.Topic == "":
		r.Unrouted++
		return nil
	case row.Event.ID == nil:
		r.Nameless++
		return nil
	}
	row.Entry.Key = KeyOf(row.Event.ID)
	if row.Entry.Topic, err = r.Topics.Index(row.Topic); err != nil {
		return err
	}
	r.read.Add(1)
	if err := r.Contents.row(row); err != nil {
		return err
	}
	return r.Audit.Row(&row.Entry)
}

// Missing calls use with groups of the missing rows' events, in the order of
// publication.
func (r *Rows) Missing(ctx context.Context, use func([]Entry, []delivery.Item) error) error {
	return r.groups(ctx, r.Audit.Missing, use)
}

// Fetch calls use with groups of the entries' events, in their order.
func (r *Rows) Fetch(ctx context.Context, entries []Entry, use func([]Entry, []delivery.Item) error) error {
	return r.groups(ctx, func(fn func(*Entry) error) error {
		for i := range entries {
			if err := fn(&entries[i]); err != nil {
				return err
			}
		}
		return nil
	}, use)
}

// groups calls use with groups of the rows' events.
func (r *Rows) groups(ctx context.Context, each func(func(*Entry) error) error, use func([]Entry, []delivery.Item) error) error {
	var group []Entry
	err := each(func(e *Entry) error {
		if len(group) >= r.Group || len(group) > 0 && r.leaves[group[0].Table] != r.leaves[e.Table] {
			if err := r.parts(ctx, group, use); err != nil {
				return err
			}
			group = group[:0]
		}
		group = append(group, *e)
		return nil
	})
	if err != nil || len(group) == 0 {
		return err
	}
	return r.parts(ctx, group, use)
}

// parts calls use with parts of the group of at most GroupBytes.
func (r *Rows) parts(ctx context.Context, group []Entry, use func([]Entry, []delivery.Item) error) error {
	sizes, err := r.sizes(ctx, group)
	if err != nil {
		return err
	}
	for len(group) > 0 {
		n, bytes := 0, int64(0)
		for n < len(group) && (n == 0 || bytes+sizes[n] <= GroupBytes) {
			bytes += sizes[n]
			n++
		}
		items, err := r.fetch(ctx, group[:n])
		if err == nil {
			err = use(group[:n], items)
		}
		if err != nil {
			return err
		}
		group, sizes = group[n:], sizes[n:]
	}
	return nil
}

// sizes are the lengths of the rows as text.
func (r *Rows) sizes(ctx context.Context, group []Entry) ([]int64, error) {
	t := r.leaves[group[0].Table]
	sizes := make([]int64, len(group))
	err := r.each(ctx, t, group, t.Identity[:1], []string{"octet_length((" + t.Name.Quoted() + ".*)::text)"},
		func(i int, _ *pg.Row, also [][]byte) (err error) {
			sizes[i], err = number(also[0])
			return err
		})
	return sizes, err
}

// each reads rows of one table by their places, in the snapshot that they were
// found in, and calls fn with the index of each in the group.
func (r *Rows) each(ctx context.Context, t *Table, group []Entry, only, also []string, fn func(i int, row *pg.Row, also [][]byte) error) error {
	index := make(map[Place]int, len(group))
	at := make([]Place, len(group))
	for i, e := range group {
		index[e.Place], at[i] = i, e.Place
	}
	found := 0
	err := catalog.ReadRows(ctx, r.Conn, catalog.Snapshot{
		Name: r.Snapshot, Table: t.Name, Relation: t.Relation, Charset: t.Charset,
		Where: Places(at), AnyOrder: true, Only: only, Also: append([]string{"tableoid::oid", "ctid"}, also...),
	}, func(row *pg.Row, also [][]byte) error {
		at, err := place(also[0], also[1])
		if err != nil {
			return err
		}
		i, ok := index[at]
		if !ok {
			return moved(t)
		}
		found++
		return fn(i, row, also[2:])
	})
	if err == nil && found != len(group) {
		err = moved(t)
	}
	return err
}

// fetch returns the events of rows in the order of the entries.
func (r *Rows) fetch(ctx context.Context, group []Entry) ([]delivery.Item, error) {
	t := r.leaves[group[0].Table]
	items := make([]delivery.Item, len(group))
	err := r.each(ctx, t, group, nil, nil, func(i int, row *pg.Row, _ [][]byte) error {
		if t.Order.Exact && group[i].Order[0] != NoTime {
			row.CommitTime = time.UnixMicro(group[i].Order[0])
		}
		ev, err := r.Router.Route(row)
		if KeyOf(ev.ID) != group[i].Key {
			return moved(t)
		}
		bad, isBad := errors.AsType[*transform.BadEvent](err)
		if err != nil && !isBad {
			return err
		}
		items[i] = delivery.Item{Event: ev, Bad: bad, Size: ev.Size()}
		return nil
	})
	return items, err
}

// moved is the error of rows at other places than in the snapshot.
func moved(t *Table) error {
	return &failure.Error{Class: failure.Transient, Remedy: "repeat the command",
		Err: fmt.Errorf("the rows of %s were moved meanwhile, as by VACUUM FULL, CLUSTER or a change of partitions", t.Name)}
}

// Places is the SQL condition of rows. PostgreSQL goes to each by its place.
func Places(at []Place) string {
	byTable := make(map[uint32][]string)
	var tables []uint32
	for _, p := range at {
		if byTable[p.Table] == nil {
			tables = append(tables, p.Table)
		}
		byTable[p.Table] = append(byTable[p.Table], fmt.Sprintf(`"(%d,%d)"`, p.Block, p.Offset))
	}
	slices.Sort(tables)
	var or []string
	for _, table := range tables {
		or = append(or, fmt.Sprintf("tableoid = %d AND ctid = ANY ('{%s}'::tid[])", table, strings.Join(byTable[table], ",")))
	}
	return "(" + strings.Join(or, ") OR (") + ")"
}

// number reads an int8; NULL is before all others.
func number(text []byte) (int64, error) {
	if text == nil {
		return NoTime, nil
	}
	return strconv.ParseInt(string(text), 10, 64)
}

// place reads tableoid and ctid, as (block,offset).
func place(table, ctid []byte) (p Place, err error) {
	block, offset, ok := strings.Cut(strings.Trim(string(ctid), "()"), ",")
	t, tableErr := strconv.ParseUint(string(table), 10, 32)
	b, blockErr := strconv.ParseUint(block, 10, 32)
	o, offsetErr := strconv.ParseUint(offset, 10, 16)
	if err := errors.Join(tableErr, blockErr, offsetErr); err != nil || !ok {
		return p, fmt.Errorf("read the place of a row: %q: %w", ctid, err)
	}
	return Place{Table: uint32(t), Block: uint32(b), Offset: uint16(o)}, nil
}
