package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/internal/base/catchup"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// WaitOptions say what Wait waits for. Either Slot or Polled is required.
type WaitOptions struct {
	// Slot is the connector's source.slot. There is no default: a database may have
	// slots of several connectors and of other programs, and the wrong one would
	// tell of other events.
	Slot string
	// Polled is for a connector with source.mode poll, which has no slot.
	Polled bool
	// Table is the polled table. Of its columns only ID counts. The role needs
	// SELECT on that and the columns below.
	Table Table
	// Published and PublishedAt are the connector's source.poll.published and
	// published_at, the columns in which published rows are marked. The defaults are
	// the connector's. A table that has neither is one whose published rows are
	// deleted.
	Published, PublishedAt string
}

// ErrLost is wrapped by the error of a Wait that can never be told of its events:
// the slot is gone, lost or made anew, or another server answers.
var ErrLost = errors.New("it will never be known whether the events are in Kafka")

// Row is a row of pgx.
type Row interface{ Scan(dest ...any) error }

// PGXQuerier is a pool or a connection of pgx. R is pgx's row, inferred by Go.
type PGXQuerier[R Row] interface {
	QueryRow(ctx context.Context, sql string, args ...any) R
}

// SQLQuerier is a *sql.DB or *sql.Conn.
type SQLQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Wait returns nil once all events that were committed before the call, by anybody,
// are in Kafka: acknowledged by the brokers, dead letters included. With an idle
// connector that takes a few milliseconds. Events of transactions that are open
// at the call are not waited for. db leads to the primary, and is no transaction,
// whose own events could not come.
//
// ctx needs a deadline: while nobody reads the slot, or Kafka is away, Wait waits.
// The error then wraps ctx's cause, and says how far the connector is. Any other
// error is of the database, or ErrLost, or one of the options.
func Wait[R Row](ctx context.Context, db PGXQuerier[R], opts WaitOptions) error {
	return opts.wait(ctx, db, func(ctx context.Context, query string, args ...any) Row { return db.QueryRow(ctx, query, args...) })
}

// WaitSQL is Wait for database/sql.
func WaitSQL(ctx context.Context, db SQLQuerier, opts WaitOptions) error {
	return opts.wait(ctx, db, func(ctx context.Context, query string, args ...any) Row {
		return db.QueryRowContext(ctx, query, args...)
	})
}

// ask is a question with a single row and column of text.
type ask func(ctx context.Context, query string, args ...any) Row

func (a ask) text(ctx context.Context, query string, args ...any) (answer []byte, err error) {
	var text string
	err = a(ctx, query, args...).Scan(&text)
	return []byte(text), err
}

func (o WaitOptions) wait(ctx context.Context, db any, question ask) error {
	if err := o.validate(ctx, db); err != nil {
		return fmt.Errorf("wait for events: %w", err)
	}
	behind, err := o.watch(ctx, question)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("wait for events: %s: %w", cmp.Or(behind, "the database has not answered"), context.Cause(ctx))
	case failure.ClassOf(err) == failure.Loss:
		return fmt.Errorf("wait for events: %w: %w (%s)", ErrLost, err, failure.RemedyOf(err))
	case failure.RemedyOf(err) != "":
		return fmt.Errorf("wait for events: %w (%s)", err, failure.RemedyOf(err))
	case pgsql.State(err) == "42501":
		return fmt.Errorf("wait for events: %w (grant the role SELECT on the polled table; without polling nothing is needed but PostgreSQL's defaults)", err)
	}
	return explain(fmt.Errorf("wait for events: %w", err))
}

func (o WaitOptions) validate(ctx context.Context, db any) error {
	_, bounded := ctx.Deadline()
	_, pgx := db.(interface{ Rollback(context.Context) error })
	_, std := db.(interface{ Rollback() error })
	switch {
	case isNil(db):
		return errors.New("there is no database")
	case pgx, std:
		return errors.New("the database is a transaction: commit first, and give the pool or the connection")
	case !bounded:
		return errors.New("the context has no deadline: use context.WithTimeout")
	case o.Polled == (o.Slot != ""):
		return errors.New("either Slot or Polled is required: the connector's source.slot, or true for source.mode poll")
	}
	return nil
}

// watch looks until all is published or ctx ends. It returns what is behind at
// the last look.
func (o WaitOptions) watch(ctx context.Context, question ask) (behind string, err error) {
	if o.Polled {
		return o.watchTable(ctx, question)
	}
	w := catchup.Wait{Slot: o.Slot}
	var pace catchup.Pace
	for {
		answer, err := question.text(ctx, catchup.LookSQL, o.Slot, pace.Ask())
		if err != nil {
			return behind, err
		}
		look, err := catchup.Parse(answer)
		if err != nil {
			return behind, err
		}
		if reached, err := w.Take(look); reached || err != nil {
			return behind, err
		}
		behind = w.Describe()
		if err := pace.Rest(ctx); err != nil {
			return behind, err
		}
	}
}

func (o WaitOptions) watchTable(ctx context.Context, question ask) (behind string, err error) {
	rows, err := o.rows(ctx, question)
	if err != nil {
		return "", err
	}
	p := catchup.Polled{Rows: rows}
	var pace catchup.Pace
	for {
		query, args := p.Statement()
		answer, err := question.text(ctx, query, args...)
		if err != nil {
			return behind, err
		}
		published, moved, err := p.Take(answer)
		if published || err != nil {
			return behind, err
		}
		behind = p.Describe()
		if moved {
			continue
		}
		if err := pace.Rest(ctx); err != nil {
			return behind, err
		}
	}
}

// columnsSQL tells of the table $1 and the columns id, published and published_at.
const columnsSQL = `SELECT jsonb_build_object(
	'key', (SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = to_regclass($1::text) AND attname = $2::text AND NOT attisdropped),
	'flag', EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass($1::text) AND attname = $3::text AND NOT attisdropped AND atttypid = 'bool'::regtype),
	'at', EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass($1::text) AND attname = $4::text AND NOT attisdropped AND NOT attnotnull
	                AND atttypid IN ('timestamp'::regtype, 'timestamptz'::regtype)))::text`

// rows finds out how the table tells of published rows, as the connector does.
func (o WaitOptions) rows(ctx context.Context, question ask) (r catchup.Rows, err error) {
	t := o.Table.withDefaults()
	published, publishedAt := cmp.Or(o.Published, "published"), cmp.Or(o.PublishedAt, "published_at")
	r = catchup.Rows{Table: pgsql.Name(t.Name), Key: pgsql.Name(t.Columns.ID), Pending: "true"}
	if t.Schema != "" {
		r.Table = pgsql.Name(t.Schema) + "." + r.Table
	}
	answer, err := question.text(ctx, columnsSQL, r.Table, t.Columns.ID, published, publishedAt)
	if err != nil {
		return r, err
	}
	var found struct {
		Key      *string
		Flag, At bool
	}
	if err := json.Unmarshal(answer, &found); err != nil {
		return r, fmt.Errorf("read the columns of %s: %w", r.Table, err)
	}
	switch {
	case found.Key == nil:
		return r, fmt.Errorf("there is no table %s with a column %s: see WaitOptions.Table", r.Table, r.Key)
	case found.Flag:
		r.Pending = "NOT " + pgsql.Name(published)
	case found.At:
		r.Pending = pgsql.Name(publishedAt) + " IS NULL"
	case o.Published != "", o.PublishedAt != "":
		return r, fmt.Errorf("table %s has neither a boolean column %q nor a nullable time %q: see WaitOptions.Published", r.Table, published, publishedAt)
	}
	r.KeyType = *found.Key
	return r, nil
}
