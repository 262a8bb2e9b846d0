package retention

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// partition is a partition of an outbox table.
type partition struct {
	table     pg.Table
	oid       uint32
	isDefault bool
	// expired: all its times are older than asked.
	expired bool
	// pending: a DETACH … CONCURRENTLY was interrupted.
	pending bool
	// comment may have dropDetached's mark.
	comment string
}

// timePattern is a bound of a partition that is a time.
const timePattern = `\d{4,}-\d\d-\d\d(?: \d\d:\d\d:\d\d[-+:.\d]*)?`

// Only partitions with a time as the upper bound are treated; others are left
// alone.
const partitionsQuery = `
SELECT n.nspname, c.relname, c.oid, bound.text = 'DEFAULT',
       COALESCE(upper.text::timestamptz < clock_timestamp() - $2::interval, false),
       i.inhdetachpending, COALESCE(obj_description(c.oid, 'pg_class'), '')
  FROM pg_inherits i
  JOIN pg_class c ON c.oid = i.inhrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
 CROSS JOIN LATERAL (SELECT COALESCE(pg_get_expr(c.relpartbound, c.oid), '') AS text) bound
 CROSS JOIN LATERAL (SELECT substring(bound.text FROM 'TO \(''(' || $3 || ')''\)$') AS text) upper
 WHERE i.inhparent = $1::regclass
 ORDER BY upper.text NULLS LAST, 2`

func (r *retention) readPartitions(ctx context.Context, conn *pgx.Conn, parent pg.Table) ([]partition, error) {
	rows, err := conn.Query(ctx, partitionsQuery, parent.Quoted(), r.opts.After, timePattern)
	if err != nil {
		return nil, fmt.Errorf("read the partitions of %s: %w", parent, err)
	}
	partitions, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p partition, err error) {
		err = row.Scan(&p.table.Schema, &p.table.Name, &p.oid, &p.isDefault, &p.expired, &p.pending, &p.comment)
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the partitions of %s: %w", parent, err)
	}
	return partitions, nil
}

// keepPartitions creates partitions ahead, detaches expired ones, drops those
// detached before a moment up to which everything is published and, if the rows
// have their turn, deletes those of the default partition. Each is tried even
// if others fail.
func (r *retention) keepPartitions(ctx context.Context, conn *pgx.Conn, parent pg.Table, rows bool, h horizon) error {
	errs := []error{r.createAhead(ctx, conn, parent)}
	partitions, err := r.readPartitions(ctx, conn, parent)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	hasDefault := slices.ContainsFunc(partitions, func(p partition) bool { return p.isDefault })
	ours := detachedFrom(parent)
	held := false // an obstacle for a partition holds for the others: they have the same table
	for _, p := range partitions {
		delete(r.seen, since{detached, p.oid}) // attached again by somebody
		switch {
		case p.isDefault && rows:
			_, err = r.deleteRows(ctx, conn, p.table, h)
		case (p.expired || p.pending) && !held:
			err = r.expire(ctx, conn, parent, p, hasDefault)
			held = err != nil
		case isMarked(p.comment, ours) && !p.expired && !p.pending:
			err = mark(ctx, conn, p.table, unmarked(p.comment, ours))
		default:
			continue
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, r.dropDetached(ctx, conn, parent))...)
}

// createAhead creates the partitions for the present and the next spans.
func (r *retention) createAhead(ctx context.Context, conn *pgx.Conn, parent pg.Table) error {
	if r.opts.PartitionsAhead == 0 {
		return nil
	}
	table := outbox.Table{Schema: parent.Schema, Name: parent.Name}
	var now time.Time
	if err := conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return fmt.Errorf("read the server's time: %w", err)
	}
	var errs []error
	at := now
	for range r.opts.PartitionsAhead + 1 {
		p, err := table.Partition(r.opts.span(), at)
		if err != nil {
			return fmt.Errorf("name a partition of %s: %w", parent, err)
		}
		at = p.To
		err = r.create(ctx, conn, parent, p)
		errs = append(errs, err)
		if pgsql.State(err) != "" {
			break // the others would fail for the same reason, and hold up writers once more
		}
	}
	return errors.Join(errs...)
}

// placeQuery looks whether a partition's name is taken, by the partition or by
// another table, and whether a partition of another name has all of the times:
// of a longer span, or the former default partition.
const placeQuery = `
SELECT to_regclass($2) IS NOT NULL,
       EXISTS (SELECT FROM pg_inherits WHERE inhparent = $1::regclass AND inhrelid = to_regclass($2)),
       EXISTS (SELECT FROM pg_inherits i
                 JOIN pg_class c ON c.oid = i.inhrelid
                CROSS JOIN LATERAL (SELECT regexp_match(pg_get_expr(c.relpartbound, c.oid),
                      'FROM \(''(' || $5 || ')''\) TO \(''(' || $5 || ')''\)$') AS times) bound
                WHERE i.inhparent = $1::regclass AND bound.times[1]::timestamptz <= $3 AND bound.times[2]::timestamptz >= $4)`

// create creates a partition unless the table has it, or another for the times.
func (r *retention) create(ctx context.Context, conn *pgx.Conn, parent pg.Table, p outbox.Partition) error {
	name := pg.Table{Schema: parent.Schema, Name: p.Name}
	var exists, attached, covered bool
	err := conn.QueryRow(ctx, placeQuery, parent.Quoted(), name.Quoted(), p.From, p.To, timePattern).Scan(&exists, &attached, &covered)
	switch {
	case err != nil:
		return fmt.Errorf("look for partition %s: %w", name, err)
	case attached, covered, time.Now().Before(r.full[name]):
		return nil
	case exists:
		return nameTaken(parent, name)
	}
	_, err = conn.Exec(ctx, p.SQL())
	if pgsql.State(err) == pgerrcode.CheckViolation {
		r.full[name] = time.Now().Add(fullWait)
		r.opts.Log.Warn("partition not created: the default partition holds rows of its time, and takes the others, too",
			zap.Stringer("partition", name), zap.String("remedy", leaveDefault))
		return nil
	}
	if err != nil {
		return fmt.Errorf("create partition %s: %w", name, err)
	}
	r.opts.Observer.RetentionPartition(parent, Created)
	r.opts.Log.Info("created partition", zap.Stringer("partition", name), zap.Time("from", p.From), zap.Time("to", p.To))
	return nil
}

// expire detaches a partition once everything written before it expired is
// published: until then a repair may want to read the rows through the table.
func (r *retention) expire(ctx context.Context, conn *pgx.Conn, parent pg.Table, p partition, hasDefault bool) error {
	published, err := r.confirmedSince(ctx, conn, since{expired, p.oid})
	if err != nil || !published {
		return err
	}
	if err := r.detach(ctx, conn, parent, p, hasDefault); err != nil {
		return err
	}
	delete(r.seen, since{expired, p.oid})
	return nil
}

// The states a partition is seen in.
const (
	expired  = "expired"
	detached = "detached"
)

// since is a state of a table that began at some moment.
type since struct {
	state string
	oid   uint32
}

// confirmedSince reports whether the confirmed position has passed the moment
// when the state was first seen.
func (r *retention) confirmedSince(ctx context.Context, conn *pgx.Conn, what since) (bool, error) {
	seen, ok := r.seen[what]
	if !ok {
		var err error
		if seen, err = readHorizon(ctx, conn); err != nil {
			return false, err
		}
		r.seen[what] = seen
	}
	return r.opts.Confirmed() >= seen.lsn, nil
}
