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

// Rows are fetched in groups: few at first, and so many that a group stays below
// groupBytes, as the last one's rows tell.
const (
	firstGroup, mostGroup = 16, 1000
	groupBytes            = 4 << 20
)

// groups calls use with the missing rows' events, in the order of publication.
func (a *auditor) groups(ctx context.Context, use func([]audit.Entry, []delivery.Item) error) error {
	size := firstGroup
	var group []audit.Entry
	flush := func() error {
		if len(group) == 0 {
			return nil
		}
		items, bytes, err := a.fetch(ctx, group)
		if err != nil {
			return err
		}
		size = min(2*size, mostGroup, max(1, int(groupBytes*int64(len(group))/max(1, bytes))))
		err = use(group, items)
		group = group[:0]
		return err
	}
	err := a.ids.Missing(func(e *audit.Entry) error {
		if len(group) >= size || len(group) > 0 && a.leaves[group[0].Table] != a.leaves[e.Table] {
			if err := flush(); err != nil {
				return err
			}
		}
		group = append(group, *e)
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}

// fetch reads rows of one table by their places, in the snapshot that they were
// found in, and returns their events in the order of the entries.
func (a *auditor) fetch(ctx context.Context, group []audit.Entry) ([]delivery.Item, int64, error) {
	t := a.leaves[group[0].Table]
	index := make(map[audit.Place]int, len(group))
	for i, e := range group {
		index[e.Place] = i
	}
	items := make([]delivery.Item, len(group))
	found, bytes := 0, int64(0)
	err := catalog.ReadRows(ctx, a.conn, catalog.Snapshot{
		Name: a.held.Name, Table: t.name, Relation: t.rel, Charset: t.charset,
		Where: places(group), AnyOrder: true, Also: []string{"tableoid::oid", "ctid"},
	}, func(row *pg.Row, also [][]byte) error {
		at, err := place(also[0], also[1])
		if err != nil {
			return err
		}
		i, ok := index[at]
		if !ok {
			return fmt.Errorf("row %v was not asked for", at)
		}
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
		found++
		bytes += row.Size()
		return nil
	})
	if err == nil && found != len(group) {
		err = moved(t)
	}
	return items, bytes, err
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
