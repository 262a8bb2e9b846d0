// Package repair finds the events left out by a lost slot: a comparison of the outbox's
// rows with the records in Kafka, by event id, for a pipeline with a slot made anew.
//
// Invariants:
//
//  1. Nothing is published unless each row in question is known to be published or
//     missing.
//  2. An event is missing only if its row is in the given snapshot, and no committed
//     record has its id.
//
// Non-goals: the slot, the snapshot, other writers (package stream); an operator's repair of a part of the rows (package admin).
package repair

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/stream"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Options are a Repairer's. All are required, unless said otherwise.
type Options struct {
	Tables      []pg.Table
	Publication string
	Event       transform.EventOptions
	Route       transform.RouteOptions
	// OnBadEvent is errors.on_bad_event. DeadLetters is the topic of bad events, if
	// there is one.
	OnBadEvent, DeadLetters string
	// Times are columns that may have the time of a row, the best first.
	Times []string
	// Retention tells that the connector deletes published rows.
	Retention bool
	// Dial makes a client to read with.
	Dial func() (*kgo.Client, error)
	// Allow is the remedy where brokers do not let a topic be read.
	Allow func(topic string) string
	// End ends what an operator's repair may still have on its way; nil: nothing can.
	End func(context.Context) error
	Log *zap.Logger
}

// Repairer implements stream.Repairer.
type Repairer struct {
	opts   Options
	router *transform.Router
}

// New returns a Repairer.
func New(opts Options) (*Repairer, error) {
	opts.Event.PositionHeaders = false // the position of a row is known from the log only
	router, err := transform.New(opts.Event, opts.Route)
	return &Repairer{opts: opts, router: router}, err
}

// patience is how long brokers may fail to answer.
const patience = time.Minute

// Readable implements stream.Repairer.
func (r *Repairer) Readable(ctx context.Context, conn *pgx.Conn) error {
	role := pgsql.Name(conn.Config().User)
	for _, t := range r.opts.Tables {
		may, hidden, err := catalog.MayRead(ctx, conn, t)
		switch {
		case err != nil:
			return err
		case !may:
			return failure.Configf("GRANT USAGE ON SCHEMA "+pgsql.Name(t.Schema)+" TO "+role+"; GRANT SELECT ON "+t.Quoted()+" TO "+role+";", "the role may not read %s", t)
		case hidden:
			return failure.Configf("ALTER ROLE "+role+" WITH BYPASSRLS;", "row-level security would hide rows of %s from the role", t)
		}
	}
	return nil
}

// Ready implements stream.Repairer.
func (r *Repairer) Ready(ctx context.Context, conn *pgx.Conn) error {
	if err := r.Readable(ctx, conn); err != nil {
		return err
	}
	if _, err := r.tables(ctx, conn); err != nil {
		return err
	}
	ids, err := audit.New("")
	if err != nil {
		return err
	}
	ids.Close()
	if r.opts.End == nil {
		return nil
	}
	return r.opts.End(ctx)
}

func (r *Repairer) tables(ctx context.Context, conn *pgx.Conn) (tables []*audit.Table, err error) {
	for _, name := range r.opts.Tables {
		rel, ok, err := catalog.ReadSent(ctx, conn, name, r.opts.Publication)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, catalog.Missing(ctx, conn, name)
		}
		t, err := audit.ReadTable(ctx, conn, r.router, rel, r.opts.Times, len(r.opts.Tables) > 1)
		if err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// Repair implements stream.Repairer.
func (r *Repairer) Repair(ctx context.Context, conn *pgx.Conn, of stream.Lacking, publish func(context.Context, []delivery.Item) error, observe func(func() stream.RepairStatus)) (stream.RepairStatus, error) {
	c := &comparison{Repairer: r, of: of, evidence: make(map[audit.Place]uint64)}
	c.rows = audit.Rows{Conn: conn, Snapshot: of.Snapshot, Router: r.router, DeadLetters: r.opts.DeadLetters, Group: audit.MostGroup}
	observe(c.status)
	defer observe(nil)
	defer c.tell()()
	err := c.run(ctx, publish)
	return c.status(), err
}

// comparison is one at work.
type comparison struct {
	*Repairer
	of     stream.Lacking
	tables []*audit.Table
	rows   audit.Rows
	topics atomic.Pointer[audit.Topics]

	missing, published atomic.Int64
	// evidence are rows from before of.Before with their transactions, published as far
	// as known. proofs count the rows with an id, absent the proofs without a record, and
	// forgotten the absent with a record perhaps taken by retention.
	evidence                  map[audit.Place]uint64
	proofs, absent, forgotten int64
	// last is the proof of the last transaction; lastAbsent: it never had a record.
	last       audit.Place
	lastAbsent bool
}

// status is the progress, for any goroutine.
func (c *comparison) status() stream.RepairStatus {
	st := stream.RepairStatus{Rows: c.rows.Count(), Missing: c.missing.Load(), Published: c.published.Load()}
	if topics := c.topics.Load(); topics != nil {
		st.Records, st.RecordsAhead = topics.Progress()
	}
	return st
}

// tell logs the progress until stop is called.
func (c *comparison) tell() (stop func()) {
	return audit.Telling(func() {
		st := c.status()
		c.opts.Log.Info("repairing", zap.Int64("rows", st.Rows), zap.Int64("records", st.Records),
			zap.Int64("records_ahead", st.RecordsAhead), zap.Int64("missing", st.Missing), zap.Int64("published", st.Published))
	})
}

func (c *comparison) run(ctx context.Context, publish func(context.Context, []delivery.Item) error) (err error) {
	client, err := c.opts.Dial()
	if err != nil {
		return err
	}
	defer client.Close()
	if c.rows.Audit, err = audit.New(""); err != nil {
		return err
	}
	defer c.rows.Audit.Close()
	if c.tables, err = c.Repairer.tables(ctx, c.rows.Conn); err != nil {
		return err
	}
	if err := c.compare(ctx, client); err != nil || publish == nil {
		return err
	}
	mark := time.Now().UTC().AppendFormat(nil, time.RFC3339)
	return c.rows.Missing(ctx, func(_ []audit.Entry, items []delivery.Item) error {
		for _, it := range items {
			it.Event.SetMark(transform.HeaderRepair, mark)
		}
		if err := publish(ctx, items); err != nil {
			return err
		}
		c.published.Add(int64(len(items)))
		return nil
	})
}

// compare reads tables and topics, and judges. No record can come meanwhile.
func (c *comparison) compare(ctx context.Context, client *kgo.Client) error {
	chosen, since, err := c.choose(ctx)
	if err != nil {
		return err
	}
	var everywhere []string
	if c.opts.DeadLetters != "" {
		everywhere = []string{c.opts.DeadLetters}
	}
	topics := audit.NewTopics(ctx, client, c.rows.Audit, audit.ReadOptions{
		Since: since, Timed: c.timed(), Patience: patience, Allow: c.opts.Allow,
		Note: func(line string) { c.opts.Log.Warn("repair: " + line) },
		Counts: func(r *kgo.Record) bool { // a replay's dead letter says nothing of the event itself
			_, replayed := transform.Header(r.Headers, transform.HeaderReplay)
			return r.Topic != c.opts.DeadLetters || !replayed
		},
	}, everywhere...)
	c.rows.Topics = topics
	c.topics.Store(topics)
	if err := topics.Beside(func(ctx context.Context) error {
		for i, t := range c.tables {
			if err := c.rows.Read(ctx, t, chosen[i], c.row); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return c.judge()
}

// row adds a row to the comparison.
func (c *comparison) row(row *audit.Row) error {
	if xid := c.evidence[row.Entry.Place]; xid != 0 && row.Topic != "" && row.Event.ID != nil {
		c.proofs++
		if xid > c.evidence[c.last] {
			c.last = row.Entry.Place
		}
	}
	return c.rows.Add(row)
}

// timed reports whether a record is never older than its row, but for the clocks.
func (c *comparison) timed() bool {
	for _, t := range c.tables {
		if !t.Zoned {
			return false
		}
	}
	return c.opts.Event.Timestamp == ""
}

// judge finds the missing events, or the reason for not knowing them.
func (c *comparison) judge() error {
	topics := c.rows.Topics
	counts, err := c.rows.Audit.Compare(func(e *audit.Entry) bool {
		known := topics.Known(e)
		if c.evidence[e.Place] != 0 {
			c.absent++
			if !known {
				c.forgotten++
			} else if e.Place == c.last {
				c.lastAbsent = true
			}
			return false
		}
		return known
	})
	if err != nil {
		return err
	}
	c.missing.Store(counts.Missing)
	switch unknown := counts.Unknown - c.absent; {
	case c.rows.Nameless > 0:
		return unknowable("%d rows have no event id, so no record can be told to be theirs", c.rows.Nameless)
	case c.rows.Unrouted > 0 && c.opts.OnBadEvent != transform.BadEventSkip:
		return unknowable("%d rows have no valid topic, so they are bad events", c.rows.Unrouted)
	case counts.Twins > 0:
		return unknowable("%d rows have the id of another row that is missing", counts.Twins)
	case unknown > 0:
		return unknowable("%d rows have no record, and may have had one: %s", unknown, limitsOf(topics))
	}
	return c.keeps(counts)
}

// keeps returns an error unless published rows stay in the tables: otherwise deleted
// rows may be missing, too.
func (c *comparison) keeps(counts audit.Counts) error {
	switch found := c.proofs - c.absent; {
	case c.of.Known && c.lastAbsent && found > 0 && c.opts.OnBadEvent != transform.BadEventSkip:
		return unknowable("the last row that was published before has no record, and rows before it have: the server's log is not the one that was read")
	case counts.Found > found: // others are there, too
		return nil
	case c.proofs > c.absent-c.forgotten: // one was published, or may have been
		return nil
	case c.proofs > 0 && c.of.Known:
		return unknowable("the last rows that were published before have no records: the server's log is not the one that was read")
	case c.opts.Retention && c.of.Before > 0: // it deletes no other row
		return nil
	case c.of.Known:
		return unknowable("no row that was published is in the tables any more, so rows that were not may have been deleted, too")
	case counts.Rows == 0:
		return unknowable("the tables are empty, so rows may have been deleted")
	}
	return nil
}

// unknowable is the error of a repair without knowledge of the missing events.
func unknowable(format string, args ...any) error {
	return failure.Lossf("`cdc-outbox repair` says what is missing for sure; look for the rest in the application's own data; then `cdc-outbox setup --accept-gap`, `cdc-outbox run` and beside it `cdc-outbox repair --publish`", format, args...)
}

func limitsOf(topics *audit.Topics) string {
	lines := topics.Limits()
	if len(lines) == 0 {
		return "they have no time to tell"
	}
	text := lines[0]
	if more := len(lines) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d topics more)", more)
	}
	return text
}
