package admin

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// write publishes the letters. Each group has a key once, so that the rest of a
// refused letter's key can wait.
func (r *redrive) write(ctx context.Context, order []chosen) error {
	return r.groups(ctx, order, func(group []*chosen, records []*kgo.Record) error {
		items := make([]delivery.Item, len(records))
		for i, rec := range records {
			ev := r.original(rec)
			items[i] = delivery.Item{Event: ev, Size: ev.Size()}
		}
		if err := r.out.write(ctx, items); err != nil {
			return err
		}
		for i := range items {
			if bad := items[i].Bad; bad != nil {
				r.refusedAgain(group[i], records[i], bad)
				continue
			}
			r.report.Published++
		}
		return nil
	})
}

// refusedAgain notes a letter that brokers refuse, or the connector's own limits.
func (r *redrive) refusedAgain(c *chosen, rec *kgo.Record, bad *transform.BadEvent) {
	letter, _ := sink.ReadLetter(rec)
	remedy := failure.RemedyOf(bad.Err)
	if remedy == "" {
		remedy = fromTable(r.cfg, &letter)
	}
	c.fate = fateRefused
	r.report.ToPublish--
	r.refuse(rec, &letter, bad.Error(), remedy)
}

// original is the event of a letter. Its record has the time of the redrive, which
// is how a later redrive finds it.
func (r *redrive) original(rec *kgo.Record) *transform.Event {
	letter, _ := sink.ReadLetter(rec)
	ev := &transform.Event{Table: letter.Table, ID: letter.ID, Record: kgo.Record{
		Topic: letter.Topic, Partition: transform.PartitionByKey, Key: letter.Key, Value: letter.Value, Headers: letter.Headers,
	}}
	if _, retimed := transform.Header(letter.Headers, transform.HeaderAsked); timed(r.cfg) && !retimed {
		ev.Asked = letter.Time
		ev.Retime()
	}
	ev.SetMark(transform.HeaderRedrive, []byte(LetterPlace{rec.Partition, rec.Offset}.String()))
	return ev
}

// groups calls use with the publishable letters, in order, in groups with a key once
// and, but for a single letter, audit.GroupBytes. A letter that use refuses holds back the
// rest of its key.
func (r *redrive) groups(ctx context.Context, order []chosen, use func([]*chosen, []*kgo.Record) error) error {
	pages := newPages(r.cluster.client, r.topic, r.logs, r.reading())
	most := audit.MostGroup
	if r.opts.Rate > 0 {
		most = min(most, r.opts.Rate)
	}
	var (
		group   []*chosen
		records []*kgo.Record
		bytes   int
		keys    = make(map[uint64]bool) // of the group
		stopped = make(map[uint64]bool)
	)
	flush := func() error {
		if len(group) == 0 {
			return nil
		}
		if err := use(group, records); err != nil {
			return err
		}
		for _, c := range group {
			if c.fate == fateRefused && c.key != 0 {
				stopped[c.key] = true
			}
		}
		group, records, bytes = nil, nil, 0
		clear(keys)
		return nil
	}
	for i := range order {
		c := &order[i]
		if c.fate != fatePublish {
			continue
		}
		if keys[c.key] && r.opts.Publish {
			if err := flush(); err != nil {
				return err
			}
		}
		if stopped[c.key] {
			c.fate = fateWait
			r.report.ToPublish--
			r.report.Waiting++
			continue
		}
		rec, err := pages.record(ctx, c.place())
		if err != nil {
			return err
		}
		if letter, _ := sink.ReadLetter(rec); r.identity(letter.Topic, letter.Key, letter.ID) != c.identity {
			return &failure.Error{Class: failure.Transient, Remedy: "repeat the command", Err: fmt.Errorf("topic %q was deleted and made again meanwhile", r.topic)}
		}
		size := sizeOf(rec) + int(transform.StoredSize(rec)) // the encoding reads the value
		if len(group) >= most || len(group) > 0 && bytes+size > audit.GroupBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		group, records, bytes = append(group, c), append(records, own(rec)), bytes+size
		if c.key != 0 {
			keys[c.key] = true
		}
	}
	return flush()
}
