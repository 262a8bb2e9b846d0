package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Rows are fetched in groups of so many rows and, but for a single row, bytes.
const (
	mostGroup  = 1000
	groupBytes = 4 << 20
)

// groups calls use with the missing rows' events, in the order of publication.
func (a *auditor) groups(ctx context.Context, use func([]audit.Entry, []delivery.Item) error) error {
	var group []audit.Entry
	err := a.ids.Missing(func(e *audit.Entry) error {
		if len(group) >= a.group || len(group) > 0 && a.leaves[group[0].Table] != a.leaves[e.Table] {
			if err := a.parts(ctx, group, use); err != nil {
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
	return a.parts(ctx, group, use)
}

// parts calls use with parts of the group that fit into groupBytes.
func (a *auditor) parts(ctx context.Context, group []audit.Entry, use func([]audit.Entry, []delivery.Item) error) error {
	sizes, err := a.sizes(ctx, group)
	if err != nil {
		return err
	}
	for len(group) > 0 {
		n, bytes := 0, int64(0)
		for n < len(group) && (n == 0 || bytes+sizes[n] <= groupBytes) {
			bytes += sizes[n]
			n++
		}
		items, err := a.fetch(ctx, group[:n])
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
func (a *auditor) sizes(ctx context.Context, group []audit.Entry) ([]int64, error) {
	t := a.leaves[group[0].Table]
	sizes := make([]int64, len(group))
	err := a.each(ctx, t, group, t.identity[:1], []string{"octet_length((" + t.name.Quoted() + ".*)::text)"},
		func(i int, _ *pg.Row, also [][]byte) (err error) {
			sizes[i], err = number(also[0])
			return err
		})
	return sizes, err
}

// each reads rows of one table by their places, in the snapshot that they were
// found in, and calls fn with the index of each in the group.
func (a *auditor) each(ctx context.Context, t *auditedTable, group []audit.Entry, only, also []string, fn func(i int, row *pg.Row, also [][]byte) error) error {
	index := make(map[audit.Place]int, len(group))
	for i, e := range group {
		index[e.Place] = i
	}
	found := 0
	err := catalog.ReadRows(ctx, a.conn, catalog.Snapshot{
		Name: a.held.Name, Table: t.name, Relation: t.rel, Charset: t.charset,
		Where: places(group), AnyOrder: true, Only: only, Also: append([]string{"tableoid::oid", "ctid"}, also...),
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
func (a *auditor) fetch(ctx context.Context, group []audit.Entry) ([]delivery.Item, error) {
	t := a.leaves[group[0].Table]
	items := make([]delivery.Item, len(group))
	err := a.each(ctx, t, group, nil, nil, func(i int, row *pg.Row, _ [][]byte) error {
		if t.order.Exact && group[i].Order[0] != audit.NoTime {
			row.CommitTime = time.UnixMicro(group[i].Order[0])
		}
		ev, err := a.router.Route(row)
		if audit.KeyOf(ev.ID) != group[i].Key {
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

// moved is the error of rows that are not where the snapshot had them.
func moved(t *auditedTable) error {
	return &failure.Error{Class: failure.Transient, Remedy: "repeat the command",
		Err: fmt.Errorf("the rows of %s were moved meanwhile, as by VACUUM FULL, CLUSTER or a change of partitions", t.name)}
}

// places is the SQL condition of the rows. PostgreSQL goes to each by its place.
func places(group []audit.Entry) string {
	byTable := make(map[uint32][]string)
	for _, e := range group {
		byTable[e.Table] = append(byTable[e.Table], fmt.Sprintf(`"(%d,%d)"`, e.Block, e.Offset))
	}
	var or []string
	for table, ctids := range byTable {
		or = append(or, fmt.Sprintf("tableoid = %d AND ctid = ANY ('{%s}'::tid[])", table, strings.Join(ctids, ",")))
	}
	return "(" + strings.Join(or, ") OR (") + ")"
}

var errListed = errors.New("enough events are listed")

// list counts the missing events by topic, and lists the first.
func (a *auditor) list(ctx context.Context) error {
	counts := make(map[uint16]int64)
	err := a.ids.Missing(func(e *audit.Entry) error {
		counts[e.Topic]++
		return nil
	})
	if err != nil {
		return err
	}
	for n, missing := range counts {
		a.result.Topics = append(a.result.Topics, MissingTopic{a.topics.Name(n), missing})
	}
	slices.SortFunc(a.result.Topics, func(a, b MissingTopic) int { return strings.Compare(a.Topic, b.Topic) })
	err = a.groups(ctx, func(group []audit.Entry, items []delivery.Item) error {
		for i, it := range items {
			if len(a.result.Events) >= a.opts.List {
				return errListed
			}
			ev := it.Event
			missing := MissingEvent{ID: string(ev.ID), Topic: a.topics.Name(group[i].Topic), Key: string(ev.Record.Key)}
			if at := group[i].At; at != audit.NoTime {
				missing.At = time.UnixMicro(at).UTC()
			}
			a.result.Events = append(a.result.Events, missing)
		}
		return nil
	})
	if errors.Is(err, errListed) {
		return nil
	}
	return err
}
