package admin

import (
	"context"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
)

// polling runs the checks of the database side in poll mode.
func (d *doctor) polling(ctx context.Context) {
	var server catalog.Server
	var database string
	err := catalog.Pooled(ctx, d.conn, func() (err error) {
		server, database, err = catalog.ReadVersion(ctx, d.conn)
		return err
	})
	if err != nil {
		d.fail("postgresql.connection", err)
		return
	}
	d.ok("postgresql.connection", "database %s", database)
	d.databaseClock(ctx)
	d.supported(server)
	for _, name := range d.cfg.Source.Tables {
		if t, err := d.readPolled(ctx, name); err != nil {
			d.fail("table "+name.String(), err)
		} else {
			d.polledTable(ctx, t)
		}
	}
	d.openTransactions(ctx, retainingAge, "vacuum cannot remove dead versions from since these began, and polls slow down")
}

func (d *doctor) polledTable(ctx context.Context, t *poll.Table) {
	label := "table " + t.Name.String()
	d.namesake(ctx, label, t.Name)
	d.ok(label, "unpublished rows are those with %s", t.Condition())
	if err := catalog.Pooled(ctx, d.conn, func() error { return t.Unmarked(ctx, d.conn) }); err != nil {
		d.fail(label, err)
	}
	for _, w := range t.Warnings() {
		switch w.Error() {
		case errText(t.MissingIndex()), errText(t.DoubtfulOrder()): // below
		default:
			d.warn(label, failure.RemedyOf(w), "%s", w)
		}
	}
	d.polledIndex(t)
	d.polledOrder(t)
	d.routes(ctx, waiting(t))
	d.pollPrivileges(ctx, t)
	d.notifications(ctx, t)
	d.vacuum(ctx, t)
}

// waiting are the unpublished rows.
func waiting(t *poll.Table) catalog.Snapshot {
	return catalog.Snapshot{Table: t.Name, Relation: t.Relation, Where: t.Condition(), OrderBy: t.OrderBy()}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (d *doctor) polledIndex(t *poll.Table) {
	name := "index " + t.Name.String()
	if err := t.MissingIndex(); err != nil {
		d.fail(name, err)
		return
	}
	d.ok(name, "%s finds the unpublished rows", t.Index)
}

func (d *doctor) polledOrder(t *poll.Table) {
	name := "order " + t.Name.String()
	if err := t.DoubtfulOrder(); err != nil {
		d.warn(name, failure.RemedyOf(err), "%s", err)
		return
	}
	d.ok(name, "by %s", strings.Join(t.Order.Columns, ", "))
}

func (d *doctor) pollPrivileges(ctx context.Context, t *poll.Table) {
	name := "privileges " + t.Name.String()
	if err := catalog.Pooled(ctx, d.conn, func() error { return t.Permitted(ctx, d.conn) }); err != nil {
		d.fail(name, err)
		return
	}
	d.ok(name, "role %s may read, lock and change the rows", d.conn.Config().User)
}

func (d *doctor) notifications(ctx context.Context, t *poll.Table) {
	name := "notifications " + t.Name.String()
	p := d.cfg.Source.Poll
	if p.Notify == "" {
		d.skip(name, "source.poll.notify is empty")
		return
	}
	there, prepares := false, false
	err := catalog.Pooled(ctx, d.conn, func() (err error) {
		if there, err = t.Notifies(ctx, d.conn, p.Notify); err == nil {
			prepares, err = catalog.Prepares(ctx, d.conn)
		}
		return err
	})
	switch {
	case err != nil:
		d.fail(name, err)
	case there && prepares:
		d.warn(name, "if an application does: "+strings.Join(t.DropNotifySQL(), "; ")+"; and set source.poll.notify to \"\"", "%s", notifyBreaks)
	case prepares:
		d.warn(name, "set source.poll.notify to \"\" to leave it at that; or, if no application prepares transactions that write events: cdc-outbox setup --notify",
			"no trigger notifies the channel %s, as %s: after a pause, events wait for up to %s", p.Notify, notifyBreaks, p.MaxInterval)
	case !there:
		d.warn(name, strings.Join(t.NotifySQL(p.Notify), "; ")+"; or set source.poll.notify to \"\"",
			"no trigger notifies the channel %s: after a pause, events wait for up to %s", p.Notify, p.MaxInterval)
	default:
		d.ok(name, "a trigger notifies the channel %s", p.Notify)
	}
}

// mostDead is the number of dead row versions tolerable for polls: each poll
// passes over versions invisible to all transactions until removed by vacuum.
const mostDead = 200_000

func (d *doctor) vacuum(ctx context.Context, t *poll.Table) {
	name := "vacuum " + t.Name.String()
	var off bool
	var dead int64
	err := catalog.Pooled(ctx, d.conn, func() (err error) {
		off, dead, err = catalog.ReadDead(ctx, d.conn, t.OID)
		return err
	})
	switch {
	case err != nil:
		d.fail(name, err)
	case off:
		d.warn(name, "ALTER TABLE "+t.Name.Quoted()+" RESET (autovacuum_enabled); and set autovacuum = on",
			"autovacuum is off: each published row leaves a dead version behind")
	case dead > mostDead:
		d.warn(name, "ALTER TABLE "+t.Name.Quoted()+" SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000); and end transactions that are open for long",
			"%d dead versions, which polls have to pass over", dead)
	default:
		d.ok(name, "%d dead versions", dead)
	}
}

// noSlot is the error of a verb needing a slot, with the alternative.
func noSlot(what, instead string) error {
	return failure.Configf(instead, "%s needs a replication slot, which source.mode: poll has not", what)
}
