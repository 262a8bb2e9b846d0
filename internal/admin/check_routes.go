package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// The rows routed to find topics are few, and read for a short time: an outbox
// never emptied may be large.
const routedRows = 1000

// routePatience is longer in tests.
var routePatience = 3 * time.Second

// routes finds the topics of rows in the table, and bad events among them. A
// role without the right to read the table is no failure: streaming needs no
// such right.
func (d *doctor) routes(ctx context.Context, s catalog.Snapshot) {
	d.stricter(s)
	name := "rows " + s.Table.String()
	bad := map[transform.Reason]int{}
	n := 0
	err := d.someRows(ctx, s, func(row *pg.Row) error {
		n++
		ev, err := d.router.Route(row)
		if err == nil {
			err = d.encode(ctx, ev)
		}
		if b, ok := errors.AsType[*transform.BadEvent](err); ok {
			bad[b.Reason]++
		} else if err != nil {
			return err
		}
		if topic := ev.Record.Topic; err == nil && !slices.Contains(d.topics, topic) {
			d.topics = append(d.topics, topic)
		}
		return nil
	})
	switch {
	case err != nil:
		d.add(name, Skipped, "not read, so that its topics are not known: "+err.Error(), remedyOf(err))
	case len(bad) > 0:
		d.warn(name, "see them with `cdc-outbox tail --from-table`; errors.on_bad_event decides about them",
			"of %d rows looked at, these would be bad events: %s", n, countReasons(bad))
	default:
		d.ok(name, "%d rows looked at, all can be published", n)
	}
}

// stricter names rows that end the connector here, and not Debezium.
func (d *doctor) stricter(s catalog.Snapshot) {
	if rows := d.router.Stricter(s.Relation); len(rows) > 0 {
		d.ok("bad events "+s.Table.String(), "published by Debezium, and bad events here (errors.on_bad_event: %s): %s",
			d.cfg.Errors.OnBadEvent, strings.Join(rows, "; "))
	}
}

func countReasons(bad map[transform.Reason]int) string {
	var parts []string
	for reason, n := range bad {
		parts = append(parts, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(parts)
	return fmt.Sprint(parts)
}

// someRows has a separate connection, closed when patience runs out.
func (d *doctor) someRows(ctx context.Context, s catalog.Snapshot, fn func(*pg.Row) error) error {
	ctx, cancel := context.WithTimeout(ctx, routePatience)
	defer cancel()
	own, err := open(ctx, d.cfg)
	if err != nil {
		return err
	}
	defer own.close()
	s.Limit = routedRows
	if s.Charset, err = catalog.ReadCharset(ctx, own.conn); err != nil {
		return err
	}
	return catalog.ReadSnapshot(ctx, own.conn, s, fn)
}
