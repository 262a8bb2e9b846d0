package wal

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// The message types of pgoutput, protocol version 1 (PostgreSQL documentation,
// "Logical Replication Message Formats").
const (
	pgoutputBegin    = 'B'
	pgoutputCommit   = 'C'
	pgoutputOrigin   = 'O'
	pgoutputRelation = 'R'
	pgoutputType     = 'Y'
	pgoutputInsert   = 'I'
	pgoutputUpdate   = 'U'
	pgoutputDelete   = 'D'
	pgoutputTruncate = 'T'
	pgoutputMessage  = 'M'
	// pgoutputAbort ends a streamed transaction (protocol version 2).
	// PostgreSQL 18.0 to 18.6 sends one with version 1, too, for a transaction
	// of which it has sent nothing.
	pgoutputAbort = 'A'
)

var (
	errShort    = errors.New("message ends too early")
	errProtocol = errors.New("protocol violation")
)

// decoder turns pgoutput messages into Messages. decoder keeps the state the
// protocol spreads over messages: the open transaction, the relations and the
// domains announced so far. decoder does no I/O and is used by a single
// goroutine.
type decoder struct {
	prefix    string                  // of logical messages delivered; empty: all
	notice    func(content []byte)    // see Options.Notice
	uncounted bool                    // nobody asked for messages but those for notice
	wanted    func(*pg.Row) bool      // see Options.Wanted; nil: every row is
	keep      func(*pg.Relation) bool // see Options.Keep; nil: every relation is kept
	charset   *pg.Charset             // of the values; nil: UTF-8, or no matter
	cut       bool                    // the message ends after the head: unwanted
	msg       Message
	open      bool // between Begin and Commit
	next      uint32
	relations map[uint32]*pg.Relation
	others    map[uint32]struct{} // relations announced and not kept
	baseTypes map[uint32]uint32   // domain OID → OID of the built-in base type
	typeNames map[uint32]string   // OID of another type that is not built in → name
	builtin   *pgtype.Map
}

func newDecoder() *decoder {
	return &decoder{
		relations: map[uint32]*pg.Relation{},
		others:    map[uint32]struct{}{},
		baseTypes: map[uint32]uint32{},
		typeNames: map[uint32]string{},
		builtin:   pgtype.NewMap(),
	}
}

// decode reads one pgoutput message. decode returns nil for a message only the
// decoder needs. The next call reuses the result and the slices; their bytes
// are data's.
func (d *decoder) decode(data []byte) (*Message, error) {
	if len(data) == 0 {
		return nil, errShort
	}
	c := cursor{buf: data[1:]}
	kind := data[0]
	if !d.open && changesRows(kind) {
		return nil, fmt.Errorf("%w: message %q outside a transaction", errProtocol, kind)
	}

	var msg *Message
	var err error
	switch kind {
	case pgoutputInsert:
		msg, err = d.insert(&c)
	case pgoutputBegin:
		err = d.begin(&c)
	case pgoutputCommit:
		msg, err = d.commit(&c)
	case pgoutputRelation:
		err = d.relation(&c)
	case pgoutputType:
		err = d.typeName(&c)
	case pgoutputUpdate:
		msg, err = d.update(&c)
	case pgoutputDelete:
		msg, err = d.delete(&c)
	case pgoutputTruncate:
		msg, err = d.truncate(&c)
	case pgoutputMessage:
		msg, err = d.logicalMessage(&c)
	case pgoutputOrigin:
		return nil, nil
	case pgoutputAbort:
		return d.abort()
	default:
		return nil, fmt.Errorf("%w: unknown pgoutput message %q", errProtocol, kind)
	}
	if err == nil && c.short {
		err = errShort
	}
	if err != nil {
		return nil, fmt.Errorf("decode pgoutput message %q: %w", kind, err)
	}
	return msg, nil
}

func changesRows(kind byte) bool {
	switch kind {
	case pgoutputInsert, pgoutputUpdate, pgoutputDelete, pgoutputTruncate, pgoutputCommit:
		return true
	}
	return false
}

func (d *decoder) begin(c *cursor) error {
	if d.open {
		return fmt.Errorf("%w: transaction begins inside another", errProtocol)
	}
	d.msg.Row = pg.Row{
		Position:   pg.Position{CommitLSN: pg.LSN(c.uint64())},
		CommitTime: postgresTime(c.uint64()),
		XID:        c.uint32(),
		Values:     d.msg.Row.Values,
	}
	d.open, d.next = !c.short, 0
	return nil
}

func (d *decoder) commit(c *cursor) (*Message, error) {
	c.byte() // flags, unused
	if lsn := pg.LSN(c.uint64()); lsn != d.msg.Row.Position.CommitLSN && !c.short {
		return nil, fmt.Errorf("%w: commit at %s ends the transaction of %s", errProtocol, lsn, d.msg.Row.Position.CommitLSN)
	}
	d.msg.End = pg.LSN(c.uint64())
	c.uint64() // commit time, known from begin
	d.open = false
	d.msg.Row.Relation = nil
	d.msg.Kind = Commit
	return &d.msg, nil
}

// abort passes over the end of a transaction never sent: larger than
// logical_decoding_work_mem, with a released savepoint, and rolled back. Within
// a transaction, an abort would end the part sent before, which protocol
// version 1 does not have.
func (d *decoder) abort() (*Message, error) {
	if d.open {
		return nil, fmt.Errorf("%w: stream abort inside a transaction", errProtocol)
	}
	d.msg.Kind = Abort
	return &d.msg, nil
}

// change starts a row message: the row is counted and the relation found.
func (d *decoder) change(kind Kind, oid uint32) (*Message, error) {
	rel := d.msg.Row.Relation
	if rel == nil || rel.OID != oid {
		rel = d.relations[oid]
		if rel == nil {
			if _, known := d.others[oid]; !known {
				return nil, fmt.Errorf("%w: row of relation %d, which was not announced", errProtocol, oid)
			}
			rel = &pg.Relation{OID: oid}
		}
	}
	d.msg.Kind = kind
	d.msg.Unread = d.cut || rel.Namespace == "" // of an announced relation
	if d.msg.Unread {
		d.msg.Row.Values = d.msg.Row.Values[:0]
	}
	d.msg.Row.Relation = rel
	d.msg.Row.Position.Seq = d.next
	d.next++
	return &d.msg, nil
}

func (d *decoder) insert(c *cursor) (*Message, error) {
	msg, err := d.change(Insert, c.uint32())
	if err != nil || msg.Unread {
		return msg, err
	}
	if tag := c.byte(); tag != 'N' {
		return nil, fmt.Errorf("%w: tuple tag %q in an insert", errProtocol, tag)
	}
	return msg, d.tuple(c)
}

func (d *decoder) update(c *cursor) (*Message, error) {
	msg, err := d.change(Update, c.uint32())
	if err != nil || msg.Unread {
		return msg, err
	}
	tag := c.byte()
	if tag == 'K' || tag == 'O' { // the old key or row stands first
		if err := d.tuple(c); err != nil {
			return nil, err
		}
		tag = c.byte()
	}
	if tag != 'N' {
		return nil, fmt.Errorf("%w: tuple tag %q in an update", errProtocol, tag)
	}
	return msg, d.tuple(c)
}

func (d *decoder) delete(c *cursor) (*Message, error) {
	msg, err := d.change(Delete, c.uint32())
	if err != nil || msg.Unread {
		return msg, err
	}
	if tag := c.byte(); tag != 'K' && tag != 'O' {
		return nil, fmt.Errorf("%w: tuple tag %q in a delete", errProtocol, tag)
	}
	return msg, d.tuple(c)
}

// truncate names the first relation only: a truncation is counted, not acted on.
func (d *decoder) truncate(c *cursor) (*Message, error) {
	n := c.uint32()
	c.byte() // options
	if n == 0 {
		return nil, fmt.Errorf("%w: truncate of no relation", errProtocol)
	}
	msg, err := d.change(Truncate, c.uint32())
	if err == nil {
		msg.Row.Values = msg.Row.Values[:0]
	}
	return msg, err
}

// logicalMessage delivers the messages of the prefix. Others only count as
// changes of their transaction, if any were asked for.
func (d *decoder) logicalMessage(c *cursor) (*Message, error) {
	transactional := c.byte() == 1
	lsn := pg.LSN(c.uint64())
	prefix := c.string()
	var content []byte
	if !d.cut {
		content = c.bytes(int(c.uint32()))
	}
	seq := d.next
	switch {
	case c.short:
		return nil, errShort
	case transactional && !d.open:
		return nil, fmt.Errorf("%w: transactional message outside a transaction", errProtocol)
	case transactional && !d.uncounted:
		d.next++
	}
	if d.notifies(prefix) {
		if transactional {
			d.notice(content)
		}
		return nil, nil
	}
	if !d.delivers(prefix) {
		return nil, nil
	}
	d.msg.Kind = LogicalMessage
	d.msg.Unread = false
	d.msg.NonTransactional = !transactional
	d.msg.Row.Relation = nil
	d.msg.Row.Position.Seq = seq
	if !d.open {
		d.msg.Row = pg.Row{Position: pg.Position{CommitLSN: lsn}, Values: d.msg.Row.Values}
	}
	if d.msg.Prefix != string(prefix) { // most often the same as before
		d.msg.Prefix = string(prefix)
	}
	d.msg.Content = content
	return &d.msg, nil
}

func (d *decoder) delivers(prefix []byte) bool {
	return !d.uncounted && (d.prefix == "" || d.prefix == string(prefix))
}

func (d *decoder) notifies(prefix []byte) bool {
	return d.notice != nil && string(prefix) == catalog.NoticePrefix
}

// unwanted judges a message by the head: whether nobody needs the rest. The
// message still counts as a change of the transaction.
func (d *decoder) unwanted(head []byte) bool {
	c := cursor{buf: head[1:]}
	switch head[0] {
	case pgoutputInsert, pgoutputUpdate, pgoutputDelete:
		oid := c.uint32()
		if rel := d.relations[oid]; rel != nil {
			return d.wanted != nil && d.open && !d.wanted(&pg.Row{Position: d.msg.Row.Position, Relation: rel})
		}
		_, known := d.others[oid]
		return d.open && known
	case pgoutputMessage:
		c.byte()   // whether part of the transaction
		c.uint64() // the position
		prefix := c.string()
		return !c.short && !d.delivers(prefix) && !d.notifies(prefix)
	}
	return false
}

// tuple reads a row's values into the reused slice.
func (d *decoder) tuple(c *cursor) error {
	n := int(c.uint16())
	if want := len(d.msg.Row.Relation.Columns); n != want && !c.short {
		return fmt.Errorf("%w: %d values for %d columns", errProtocol, n, want)
	}
	values := d.msg.Row.Values[:0]
	for range n {
		v := pg.Value{Kind: pg.ValueKind(c.byte())}
		switch v.Kind {
		case pg.Text:
			v.Data = c.bytes(int(c.uint32()))
		case pg.Null, pg.UnchangedToast:
		default:
			if c.short {
				return errShort
			}
			return fmt.Errorf("%w: value kind %q", errProtocol, byte(v.Kind))
		}
		values = append(values, v)
	}
	d.msg.Row.Values = values
	if d.charset != nil && (d.wanted == nil || d.wanted(&d.msg.Row)) {
		d.charset.Convert(values)
	}
	return nil
}

// name is a name the server sent.
func (d *decoder) name(b []byte) string {
	text, _ := d.charset.UTF8(b)
	return string(text)
}

// relation learns a table's definition. A repetition without a change keeps the
// pointer, a key of callers' caches.
func (d *decoder) relation(c *cursor) error {
	rel := &pg.Relation{OID: c.uint32(), Namespace: d.name(c.string()), Name: d.name(c.string())}
	if rel.Namespace == "" { // pgoutput's short form of pg_catalog
		rel.Namespace = "pg_catalog"
	}
	c.byte() // replica identity
	n := int(c.uint16())
	for range n {
		identity := c.byte()&1 != 0
		col := pg.Column{Name: d.name(c.string()), Type: c.uint32(), Identity: identity}
		col.Modifier = int32(c.uint32())
		if c.short {
			return errShort
		}
		if base, ok := d.baseTypes[col.Type]; ok {
			col.Type, col.Modifier = base, pg.UnknownModifier
		}
		col.TypeName = d.typeNames[col.Type]
		rel.Columns = append(rel.Columns, col)
	}
	d.learn(rel)
	d.msg.Row.Relation = nil // look up anew
	return nil
}

// learn keeps a definition, or only the announcement.
func (d *decoder) learn(rel *pg.Relation) {
	if d.keep != nil && !d.keep(rel) {
		delete(d.relations, rel.OID)
		d.others[rel.OID] = struct{}{}
		return
	}
	delete(d.others, rel.OID)
	if known := d.relations[rel.OID]; known == nil || !same(known, rel) {
		d.relations[rel.OID] = rel
	}
}

// typeName learns a domain's base type: for a domain pgoutput announces the
// domain's OID with the base type's name (logicalrep_write_typ in
// src/backend/replication/logical/proto.c).
func (d *decoder) typeName(c *cursor) error {
	oid, namespace, name := c.uint32(), c.string(), c.string()
	delete(d.baseTypes, oid) // an OID may be used again
	delete(d.typeNames, oid)
	if len(namespace) != 0 { // not a type of pg_catalog
		d.typeNames[oid] = d.name(name)
		return nil
	}
	if t, ok := d.builtin.TypeForName(string(name)); ok {
		d.baseTypes[oid] = t.OID
	}
	return nil
}

// same reports whether two relations announce the same table.
func same(r, o *pg.Relation) bool {
	if r.Namespace != o.Namespace || r.Name != o.Name || len(r.Columns) != len(o.Columns) {
		return false
	}
	for i := range r.Columns {
		if r.Columns[i] != o.Columns[i] {
			return false
		}
	}
	return true
}

// postgresEpoch is the zero of PostgreSQL's timestamps, in Unix microseconds.
var postgresEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

func postgresTime(micros uint64) time.Time {
	return time.UnixMicro(postgresEpoch + int64(micros)).UTC()
}
