package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// TailOptions are the choices of Tail.
type TailOptions struct {
	// FromTable prints the present rows of the tables and ends, without a slot.
	FromTable bool
	// JSON prints a JSON object per line, as sink.stdout does, instead of lines
	// for a person.
	JSON bool
	// Limit ends after so many events; 0 means no limit.
	Limit int
	// Out takes the events, Notes takes messages about the progress.
	Out, Notes io.Writer
}

// errEnough ends a snapshot at the limit.
var errEnough = errors.New("enough events")

// Tail prints events as the connector would publish them, from now on until ctx
// ends (nil) or the limit is reached. Tail confirms nothing: its slot is
// temporary. A bad event's row is printed with the reason.
func Tail(ctx context.Context, cfg *config.Config, opts TailOptions) error {
	if opts.FromTable && len(cfg.Source.Tables) == 0 {
		return noTable("tail --from-table", "`cdc-outbox tail` shows them as they come")
	}
	if cfg.Source.Mode == config.ModePoll && !opts.FromTable {
		return noSlot("tail without --from-table", "add --from-table, which shows the rows that wait")
	}
	s, err := open(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.close()
	t := &tail{session: s, opts: opts, out: consolePrinter{opts.Out}, verb: "tail", began: func(_ string, at pg.LSN) {
		fmt.Fprintf(opts.Notes, "events committed after %s, nothing is confirmed; Ctrl-C ends\n", at)
	}}
	if opts.JSON {
		t.out = jsonPrinter{sink.NewStdout(opts.Out)}
	}
	defer s.patient(ctx, s.conn.PgConn(), nil)() // all rows may have to be sorted before the first
	if opts.FromTable {
		err = t.fromTables(ctx)
	} else {
		err = t.fromStream(ctx)
	}
	if ctx.Err() != nil || errors.Is(err, errEnough) {
		return nil
	}
	return err
}

type tail struct {
	*session
	opts    TailOptions
	out     printer
	printed int
	held    held // from the stream only, as all below
	moves   transform.Moves
	apart   []uint32                            // the partitioned tables
	verb    string                              // in the slot's name
	began   func(slot string, from pg.LSN)      // called before the first event
	passed  func(context.Context, pg.LSN) error // called when all that ends there was printed; nil: nobody asks
}

// printer writes an event; bad is nil for a good event. *sink.Stdout has the
// same form with two methods.
type printer interface {
	print(ctx context.Context, ev *transform.Event, bad *transform.BadEvent) error
}

// jsonPrinter prints the stdout sink's lines.
type jsonPrinter struct{ out *sink.Stdout }

func (p jsonPrinter) print(ctx context.Context, ev *transform.Event, bad *transform.BadEvent) error {
	if bad != nil {
		return p.out.DeadLetter(ctx, ev, bad)
	}
	return p.out.Deliver(ctx, []*transform.Event{ev}, nil)
}

// row prints the event of an inserted row.
func (t *tail) row(ctx context.Context, row *pg.Row) error {
	ev, err := t.router.Route(row)
	return t.event(ctx, ev, err)
}

// event prints the router's event of a row or message.
func (t *tail) event(ctx context.Context, ev *transform.Event, err error) error {
	bad, isBad := errors.AsType[*transform.BadEvent](err)
	if err != nil && !isBad {
		return err
	}
	return t.hold(ctx, ev, bad)
}

// show prints an event.
func (t *tail) show(ctx context.Context, ev *transform.Event, bad *transform.BadEvent) error {
	if err := t.out.print(ctx, ev, bad); err != nil {
		return err
	}
	if t.printed++; t.printed == t.opts.Limit {
		return errEnough
	}
	return nil
}

// fromTables prints the rows of each table, in the order of a snapshot; in poll
// mode the unpublished ones, as they would be published.
func (t *tail) fromTables(ctx context.Context) error {
	if !t.polls() {
		if err := t.snapshots(ctx); err != nil {
			return err
		}
	} else if err := t.polled(ctx, func(table *poll.Table) error { return t.rows(ctx, waiting(table)) }); err != nil {
		return err
	}
	fmt.Fprintf(t.opts.Notes, "%d rows\n", t.printed)
	return nil
}

func (t *tail) rows(ctx context.Context, s catalog.Snapshot) error {
	s.Limit = t.opts.Limit
	var err error
	if s.Charset, err = catalog.ReadCharset(ctx, t.conn); err != nil {
		return err
	}
	return catalog.ReadSnapshot(ctx, t.conn, s, func(r *pg.Row) error { return t.row(ctx, r) })
}

func (t *tail) snapshots(ctx context.Context) error {
	server, err := catalog.ReadServer(ctx, t.conn)
	if err != nil {
		return err
	}
	if _, err := catalog.ReadTables(ctx, t.conn, t.cfg.Source.Tables); err != nil {
		return err
	}
	for _, table := range t.cfg.Source.Tables {
		rel, _, err := catalog.ReadSent(ctx, t.conn, table, t.cfg.Source.Publication)
		if err == nil {
			err = t.router.Bind(rel)
		}
		if err == nil {
			err = t.rows(ctx, catalog.Snapshot{Table: table, Relation: rel,
				Position: pg.Position{CommitLSN: server.FlushLSN, Seq: uint32(t.printed)}})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fromStream prints everything committed from now on.
func (t *tail) fromStream(ctx context.Context) error {
	if err := t.publicationReady(ctx); err != nil {
		return err
	}
	stream, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer catalog.Close(stream) // the slot goes with the connection either way
	t.held, t.moves = newHeld(t.cfg), t.session.moves()

	for {
		msg, err := stream.Next(ctx)
		if err != nil {
			return err
		}
		if err := t.take(ctx, msg); err != nil {
			return err
		}
		if msg.Kind == wal.Commit || msg.Kind == wal.Keepalive {
			if t.passed != nil {
				if err := t.passed(ctx, msg.End); err != nil {
					return err
				}
			}
			stream.Confirm(msg.End) // otherwise the temporary slot would retain WAL
		}
	}
}

// take prints the events of a message, or with that of the commit.
func (t *tail) take(ctx context.Context, msg *wal.Message) error {
	switch msg.Kind {
	case wal.Insert:
		if !t.ours(msg.Row.Relation) || t.moves.Inserted(t.router, &msg.Row) == transform.Moved {
			return nil
		}
		if err := t.describeColumns(ctx, msg.Row.Relation); err != nil {
			return err
		}
		return t.row(ctx, &msg.Row)
	case wal.Delete:
		if slices.Contains(t.apart, msg.Row.Relation.OID) {
			t.moves.Deleted(t.router, &msg.Row)
		}
	case wal.LogicalMessage:
		ev, err := t.router.RouteMessage(msg)
		return t.event(ctx, ev, err)
	case wal.Commit, wal.Keepalive:
		t.moves.End()
		if msg.Kind == wal.Commit {
			return t.committed(ctx)
		}
	}
	return nil
}

// describeColumns has the router know the columns of a table in a stream.
func (s *session) describeColumns(ctx context.Context, rel *pg.Relation) error {
	if !s.router.Describes() || s.described[rel.OID] == rel {
		return nil
	}
	known, err := catalog.DescribeColumns(ctx, s.conn, rel.OID)
	if err != nil {
		return err
	}
	s.router.Describe(known)
	if s.described == nil {
		s.described = make(map[uint32]*pg.Relation)
	}
	s.described[rel.OID] = rel
	return nil
}

// ours tells whether run reads events from the table.
func (s *session) ours(rel *pg.Relation) bool {
	return slices.Contains(s.cfg.Source.Tables, pg.Table{Schema: rel.Namespace, Name: rel.Name})
}

// publicationReady returns why no event would arrive, if so.
func (t *tail) publicationReady(ctx context.Context) error {
	infos, err := catalog.ReadTables(ctx, t.conn, t.cfg.Source.Tables)
	if err != nil {
		return err
	}
	t.apart = catalog.PartitionedOIDs(infos)
	var v catalog.View
	if err := v.ReadPublication(ctx, t.conn, t.source()); err != nil {
		return err
	}
	if v.Publication == nil {
		return missingPublication(t.cfg, infos)
	}
	return v.Unfit()
}

// open creates the temporary slot and streams from it, on a single connection.
func (t *tail) open(ctx context.Context) (*wal.Stream, error) {
	server, err := catalog.ReadServer(ctx, t.conn)
	if err != nil {
		return nil, err
	}
	if server.InRecovery && server.Major() < 16 { // unable to decode
		return nil, onStandby()
	}
	if open, err := readTransactions(ctx, t.conn); err == nil && len(open) > 0 {
		fmt.Fprintf(t.opts.Notes, "waiting for %s\n", describeTransactions(open))
	}
	repl, err := t.replication(ctx)
	if err != nil {
		return nil, err
	}
	name := temporarySlot(t.cfg.Source.Slot, t.verb)
	created := t.patient(ctx, repl, func(w catalog.Waiting) {
		fmt.Fprintf(t.opts.Notes, "still waiting for %s\n", w)
	})
	at, _, err := catalog.CreateSlot(ctx, repl, name, server.Version, catalog.SlotOptions{Temporary: true})
	created()
	if err != nil {
		catalog.Close(repl)
		return nil, err
	}
	t.began(name, at)
	return t.stream(ctx, repl, name, at, 0)
}
