package poll

import (
	"errors"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Warnings are the doubts about a table, each with a remedy.
func (t *Table) Warnings() []error {
	var all []error
	for _, w := range []error{t.MissingIndex(), t.DoubtfulOrder(), t.nulls(), t.noTime(), t.otherZone()} {
		if w != nil {
			all = append(all, w)
		}
	}
	return all
}

// MissingIndex is the error of a table without an index of unpublished rows.
func (t *Table) MissingIndex() error {
	if t.Index != "" {
		return nil
	}
	if t.building != "" {
		name := pg.Table{Schema: t.Name.Schema, Name: t.building}.Quoted()
		return failure.Configf("wait if it is being created (SELECT * FROM pg_stat_progress_create_index); else: DROP INDEX "+name+"; "+t.IndexSQL()+";",
			"index %s, which would find the unpublished rows, is not valid: it is being created, or its creation failed", t.building)
	}
	return failure.Configf(t.IndexSQL()+";", "no index finds the unpublished rows in their order: every poll reads the whole table")
}

// DoubtfulOrder is an error where the order column's values need not rise with
// the commits of a key's transactions.
func (t *Table) DoubtfulOrder() error {
	column := pgsql.Name(t.Order.Columns[0])
	switch t.Order.Kind {
	case OrderTransactionTime:
		return failure.Configf("ALTER TABLE "+t.Name.Quoted()+" ALTER COLUMN "+column+" SET DEFAULT clock_timestamp(); (rewrites nothing)",
			"events are ordered by %s, which has the time when a transaction began: events of a key whose transactions waited for one another may be out of order when they are polled together", t.Order.Columns[0])
	case OrderBlocks:
		return failure.Configf("ALTER SEQUENCE "+t.Order.blocks+" INCREMENT 1 CACHE 1; (first see that the application does not count on it: Hibernate's allocationSize is the increment), or name another column in source.poll.order_by",
			"events are ordered by %s, whose sequence hands out values in blocks: a session with an older block writes lower values than one that wrote before it", t.Order.Columns[0])
	case OrderUnknown:
		return failure.Configf("let a sequence fill it: "+AddSequenceSQL(t.Name),
			"events are ordered by %s, whose values the application sets: they are in commit order only as far as these rise with the commits of each key", t.Order.Columns[0])
	}
	return nil
}

func (t *Table) nulls() error {
	if !t.Nullable {
		return nil
	}
	column := pgsql.Name(t.published)
	return failure.Configf("UPDATE "+t.Name.Quoted()+" SET "+column+" = false WHERE "+column+" IS NULL; ALTER TABLE "+t.Name.Quoted()+" ALTER COLUMN "+column+" SET DEFAULT false, ALTER COLUMN "+column+" SET NOT NULL;",
		"column %s may be NULL, and a row in which it is NULL is never published", t.published)
}

func (t *Table) otherZone() error {
	if t.zone == "" {
		return nil
	}
	column := pgsql.Name(t.CreatedAt)
	return failure.Configf("ALTER TABLE "+t.Name.Quoted()+" ALTER COLUMN "+column+" TYPE timestamptz USING "+column+" AT TIME ZONE '"+t.zone+"'; (rewrites the table)",
		"column %s has no time zone and counts as UTC, but its default is the time in %s: records' timestamps, latency and age of the oldest row are off by the difference", t.CreatedAt, t.zone)
}

var errNoTime = errors.New("no column tells when a row was inserted: records get the time of publishing, another one in a repetition, and there is no publish latency")

func (t *Table) noTime() error {
	if t.CreatedAt != "" {
		return nil
	}
	return &failure.Error{Class: failure.Config, Err: errNoTime,
		Remedy: "ALTER TABLE " + t.Name.Quoted() + " ADD COLUMN created_at timestamptz DEFAULT clock_timestamp(); or name a column in event.timestamp"}
}
