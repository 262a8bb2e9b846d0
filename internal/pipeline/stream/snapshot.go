package stream

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/sight"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// snapshot publishes the rows of the outbox tables visible at the slot's first position,
// or as far as an interrupted attempt has got, the rest. Once all are acked, the
// checkpoint says so.
//
// The first attempt reads in the snapshot exported with the slot (held). Later attempts
// see rows committed since, too, and tell them by their writers: see sight.Wrote. They
// miss rows deleted or updated meanwhile, as the count of the table tells at its end.
func (s *source) snapshot(ctx context.Context, sql *pgx.Conn, cp checkpoint.Checkpoint, held *catalog.HeldSnapshot) error {
	defer s.intake.queue.offer() // also after a failure
	r := &initialRead{source: s, sql: sql, cp: cp, held: held}
	if err := r.begin(ctx); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	defer s.health.snapshot(&r.report)()
	if err := r.read(ctx); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	s.log.Info("published the rows that were in the outbox", zap.Uint32("rows", r.next.Seq))
	cp.Snapshot, cp.Initial, cp.Published = false, nil, cp.Published || r.next.Seq > 0
	cp.Accepted = nil // its rows are among those
	return s.checkpointer.begin(ctx, cp)
}

// initialRead is the reading of a snapshot.
type initialRead struct {
	*source
	sql    *pgx.Conn
	cp     checkpoint.Checkpoint
	plan   *checkpoint.Initial   // as far as read
	held   *catalog.HeldSnapshot // of the plan; nil: it is gone
	next   pg.Position
	report snapshotReport
}

// read takes in the rest of the tables, and waits until all is acked.
func (r *initialRead) read(ctx context.Context) error {
	for i := r.plan.At; i < len(r.plan.Tables); i++ {
		if err := r.table(ctx, i); err != nil {
			return err
		}
	}
	return r.intake.endSnapshot(ctx, r.cp.LSN)
}

// begin finds the place to go on from.
func (r *initialRead) begin(ctx context.Context) (err error) {
	if r.cp.Initial == nil { // setup has made the slot, or the first start was cut short
		r.log.Warn("publishing all rows that are in the outbox now, also those that were published before; rows deleted until now are not among them",
			zap.Stringer("lsn", r.cp.LSN))
		if r.cp.Initial, err = r.planAnew(ctx, r.sql); err != nil {
			return err
		}
	}
	if err := r.public(ctx); err != nil {
		return err
	}
	r.plan = r.intake.initial.resume(r.cp.Initial)
	r.next = pg.Position{CommitLSN: r.cp.LSN, Seq: r.plan.Rows}
	r.report.begin(r.log, r.intake.initial)
	published, counted := r.plan.Progress()
	r.log.Info("publishing the rows that are in the outbox", zap.Stringer("lsn", r.cp.LSN),
		zap.Int64("published", published), zap.Int64("rows", counted), zap.Bool("goes_on", r.held == nil))
	return nil
}

// public waits until the attempt sees all rows of the snapshot.
func (r *initialRead) public(ctx context.Context) error {
	if r.held != nil {
		return r.publicSnapshot(ctx, r.sql, r.held)
	}
	for _, t := range r.cp.Initial.Tables {
		if t.Sight == "" {
			continue
		}
		then, err := sight.Parse(t.Sight)
		if err != nil {
			return err
		}
		return r.sees(ctx, r.sql, then)
	}
	return nil
}

// planSnapshot plans the reading of all tables in the slot's snapshot, and counts their
// rows.
func (s *source) planSnapshot(ctx context.Context, sql *pgx.Conn, held *catalog.HeldSnapshot) (*checkpoint.Initial, error) {
	sees, err := held.Sight(ctx)
	if err != nil {
		return nil, err
	}
	s.log.Info("counting the rows that are in the outbox")
	plan := &checkpoint.Initial{Tables: make([]checkpoint.InitialTable, len(s.opts.Tables))}
	for i, table := range s.opts.Tables {
		planned, n, err := s.planTable(ctx, sql, table, held.Name, sees.Wrote())
		if err != nil {
			return nil, fmt.Errorf("plan the snapshot: %w", err)
		}
		if n.Met == n.Rows {
			planned.Sight = sees.String()
		} else {
			s.log.Warn("some rows are so old that the ids of their writers came again since: an interruption of the snapshot begins the table anew",
				zap.Stringer("table", table), zap.Int64("rows", n.Rows-n.Met))
		}
		plan.Tables[i] = planned
	}
	return plan, nil
}

// planAnew plans the reading of all tables without a snapshot.
func (s *source) planAnew(ctx context.Context, sql *pgx.Conn) (*checkpoint.Initial, error) {
	plan := &checkpoint.Initial{Tables: make([]checkpoint.InitialTable, len(s.opts.Tables))}
	for i, table := range s.opts.Tables {
		rel, err := s.relation(ctx, sql, table)
		if err != nil {
			return nil, err
		}
		plan.Tables[i].OID = rel.OID
	}
	return plan, nil
}

func (s *source) planTable(ctx context.Context, sql *pgx.Conn, table pg.Table, snapshot, condition string) (planned checkpoint.InitialTable, n catalog.Counted, err error) {
	defer s.waitForSnapshot(ctx, sql.PgConn())()
	rel, err := s.relation(ctx, sql, table)
	if err != nil {
		return planned, n, err
	}
	planned.OID = rel.OID
	if planned.TablePlace, err = catalog.FindOrder(ctx, sql, table); err != nil {
		return planned, n, err
	}
	n, err = catalog.CountRows(ctx, sql, snapshot, table, condition)
	planned.Counted, planned.Parts = n.Rows, n.Parts
	return planned, n, err
}

// relation describes the table as published.
func (s *source) relation(ctx context.Context, sql *pgx.Conn, t pg.Table) (*pg.Relation, error) {
	rel, ok, err := catalog.ReadSent(ctx, sql, t, s.opts.Publication)
	if err == nil && !ok {
		err = fmt.Errorf("table %s does not exist", t)
	}
	return rel, err
}

// table reads the rest of a table.
func (r *initialRead) table(ctx context.Context, i int) error {
	table, ok, err := r.configured(ctx, r.plan.Tables[i].OID)
	if err != nil || !ok {
		return err
	}
	r.report.reads(table, i+1, len(r.plan.Tables))
	planned, snapshot := &r.plan.Tables[i], ""
	if r.held != nil {
		snapshot = r.held.Name
	}
	found, err := planned.Follow(ctx, r.sql, table)
	if err != nil {
		return err
	}
	if found && (planned.Sight != "" || r.held != nil) {
		if err := r.rows(ctx, i, table, snapshot); err != nil {
			return err
		}
		if planned.Sight == "" || planned.Published == planned.Counted {
			return nil
		}
	}
	if err := r.anew(ctx, i, table); err != nil {
		return err
	}
	return r.rows(ctx, i, table, "")
}

// configured finds the present name of a table; ok is false for a table no longer in
// source.tables.
func (r *initialRead) configured(ctx context.Context, oid uint32) (t pg.Table, ok bool, err error) {
	for _, t := range r.opts.Tables {
		rel, err := r.relation(ctx, r.sql, t)
		if err != nil {
			return t, false, err
		}
		if rel.OID == oid {
			return t, true, nil
		}
	}
	r.log.Warn("a table of the snapshot is not in source.tables any more; its rows that were not published yet are left out", zap.Uint32("oid", oid))
	return t, false, nil
}

// rows reads the rows of the table behind the place of the plan, which moves on: in the
// snapshot of the name, or those visible now.
func (r *initialRead) rows(ctx context.Context, i int, table pg.Table, snapshot string) error {
	defer r.waitForSnapshot(ctx, r.sql.PgConn())()
	planned := &r.plan.Tables[i]
	rel, err := r.relation(ctx, r.sql, table)
	if err != nil {
		return err
	}
	from := catalog.Snapshot{Name: snapshot, Table: table, Relation: rel, Charset: r.charset, Position: r.next}
	condition := ""
	if planned.Sight != "" {
		sees, err := sight.Parse(planned.Sight)
		if err != nil {
			return err
		}
		condition = sees.Wrote()
	}
	from.From(&planned.TablePlace, condition)
	return catalog.ReadRows(ctx, r.sql, from, func(row *pg.Row, also [][]byte) error {
		p := rowPlace{seq: row.Position.Seq, table: i}
		if p.RowPlace, err = catalog.PlaceOf(also); err != nil {
			return err
		}
		if err := r.intake.snapshotRow(ctx, row, p); err != nil {
			return err
		}
		planned.Reach(p.RowPlace)
		r.next.Seq++
		r.report.tell(r.next.Seq)
		return nil
	})
}

// anew begins a table again, with all its present rows, in a statement that is not to be
// interrupted. Some rows come twice then, as exactly-once delivery refuses.
func (r *initialRead) anew(ctx context.Context, i int, table pg.Table) error {
	was := r.plan.Tables[i]
	if r.transactions != nil {
		return failure.Configf("`cdc-outbox setup --accept-gap --yes` keeps the slot and leaves out the rest of the snapshot; then `cdc-outbox run`, and beside it `cdc-outbox repair --publish`, which publishes exactly what is missing",
			"of the %d rows of %s in the slot's snapshot, %d are published, and nobody knows which of the others are still there: while the snapshot was interrupted, rows were deleted, updated or moved (CLUSTER, VACUUM FULL, TRUNCATE), or partitions or the key went",
			was.Counted, table, was.Published)
	}
	if was.Sight != "" {
		r.log.Warn("rows of the table were deleted, updated or moved while its snapshot was interrupted: publishing all its present rows, also those that were published before",
			zap.Stringer("table", table), zap.Int64("published", was.Published), zap.Int64("rows", was.Counted))
	}
	if err := r.intake.acked(ctx); err != nil {
		return err
	}
	planned, _, err := r.planTable(ctx, r.sql, table, "", "true")
	if err != nil {
		return err
	}
	r.plan.Tables[i] = planned
	r.plan.At, r.plan.Rows = i, r.next.Seq
	r.intake.initial.set(r.plan)
	return nil
}

// snapshotRow takes in a row of a snapshot.
func (in *intake) snapshotRow(ctx context.Context, row *pg.Row, at rowPlace) error {
	in.metrics.SnapshotRow()
	ev, err := in.router.Route(row)
	var it item
	if err := it.carry(ev, err, in.takes); err != nil {
		return err
	}
	it.memory += row.Size() + placeMemory
	in.initial.read(at)
	if err := in.enter(ctx, it); err != nil {
		in.initial.unread()
		return err
	}
	return nil
}

// endSnapshot ends the transaction of the rows, at lsn, and waits until all are acked.
func (in *intake) endSnapshot(ctx context.Context, lsn pg.LSN) error {
	if err := in.tracker.Seal(lsn, checkpoint.Landmark{}); err != nil {
		return err
	}
	return in.acked(ctx)
}

// acked waits until everything taken in is acked.
func (in *intake) acked(ctx context.Context) error {
	in.queue.offer()
	for in.tracker.InFlight() > 0 {
		if err := backoff.Sleep(ctx, ackPoll); err != nil {
			return err
		}
	}
	return nil
}

const ackPoll = 20 * time.Millisecond
