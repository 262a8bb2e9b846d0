package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Verification is an audit with the records that no row has the id of.
type Verification struct {
	Audit
	// Alone counts event ids that the topics have and the table has not, each once
	// for each topic. They are no error: rows may be deleted.
	Alone int64 `json:"alone"`
	// AloneFirst are the first of them, by topic, partition and offset.
	AloneFirst []LoneRecord `json:"alone_first"`
	// AloneWhy says what may have deleted the rows.
	AloneWhy string `json:"alone_why,omitempty"`
}

// LoneRecord is a record whose id no row has.
type LoneRecord struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	ID        string    `json:"id"`
	Time      time.Time `json:"time"`
}

// Verify compares the rows of the outbox with the records in Kafka, by event id,
// as Repair does, and publishes nothing. Of all rows, or those of a time, it also
// tells which records have no row.
func Verify(ctx context.Context, cfg *config.Config, opts AuditOptions) (*Verification, error) {
	a, err := newAuditor(ctx, "verify", cfg, opts)
	if err != nil {
		return nil, err
	}
	defer a.close()
	v := &Verification{AloneFirst: []LoneRecord{}}
	lone := &lone{auditor: a}
	if len(opts.IDs) == 0 && opts.XIDs == (XIDs{}) { // else other records are of other rows
		if lone.rest, err = audit.New(opts.Dir); err != nil {
			return nil, err
		}
		defer lone.rest.Close()
		a.news = lone.news(time.Now())
		a.ids.Alone(lone.add)
	}
	if err := a.compare(ctx); err != nil {
		return nil, err
	}
	v.Audit = *a.result
	if err := lone.find(ctx, v); err != nil {
		return nil, err
	}
	return v, v.verdict()
}

// verdict is nil if all events are in Kafka, for certain.
func (r *Audit) verdict() error {
	switch {
	case r.Missing > 0:
		return failure.Lossf("cdc-outbox repair, which publishes them after --publish", "%d of %d events are not in Kafka", r.Missing, r.Rows)
	case r.Unknown > 0:
		return failure.Configf("narrow the time by --since to what the topics keep", "of %d of %d events nothing is known", r.Unknown, r.Rows)
	}
	return nil
}

// lone finds the records without a row among all rows: those of other times, and
// those written since the snapshot, have records, too.
type lone struct {
	*auditor
	rest *audit.Audit // its rows are the records without a row among those compared
	any  bool
}

// news tells which records count: those of the time asked for, from before the start,
// as the rows of others may not be visible yet.
func (l *lone) news(start time.Time) func(*kgo.Record) bool {
	until := start
	if at := l.opts.Until; !at.IsZero() && at.Before(start) {
		until = at
	}
	return func(rec *kgo.Record) bool {
		return !rec.Timestamp.Before(l.opts.Since) && rec.Timestamp.Before(until)
	}
}

func (l *lone) add(e *audit.Entry) error {
	l.any = true
	return l.rest.Row(e)
}

// find asks the tables for their ids now.
func (l *lone) find(ctx context.Context, v *Verification) error {
	if !l.any {
		return nil
	}
	l.rows.Snapshot = ""
	for _, t := range l.tables {
		err := l.rows.Read(ctx, t.Table, "", func(row *audit.Row) error {
			if row.Event.ID == nil {
				return nil
			}
			return l.rest.Record(row.Event.ID, audit.Anywhere, audit.NoSpot) // route.topic may have changed
		})
		if err != nil {
			return err
		}
	}
	counts, err := l.rest.Compare(func(*audit.Entry) bool { return true })
	if err != nil || counts.Missing == 0 {
		return err
	}
	v.Alone = counts.Missing
	v.AloneWhy = "their rows were deleted, or never committed in this database"
	if after := l.cfg.Retention.After; after > 0 {
		v.AloneWhy = fmt.Sprintf("their rows may have been deleted by retention (retention.after: %s)", after)
	}
	return l.first(ctx, v)
}

// first reads the first of them again, for their ids.
func (l *lone) first(ctx context.Context, v *Verification) error {
	read := make(map[uint16]*pages)
	err := l.rest.Missing(func(e *audit.Entry) error {
		if len(v.AloneFirst) >= l.opts.List {
			return errListed
		}
		topic := l.topics.Name(e.Topic)
		if read[e.Topic] == nil {
			logs, err := audit.Open(ctx, l.cluster.client, topic, l.readOptions())
			if err != nil {
				return err
			}
			read[e.Topic] = newPages(l.cluster.client, topic, logs, l.readOptions())
		}
		rec, err := read[e.Topic].record(ctx, LetterPlace{int32(e.Table), e.Order[1]})
		if errors.Is(err, errGone) {
			return nil // retention deletes records as it does rows
		}
		if err != nil {
			return err
		}
		id, _ := transform.Header(rec.Headers, transform.HeaderID)
		if audit.KeyOf(id) != e.Key {
			return nil // the topic was made again
		}
		v.AloneFirst = append(v.AloneFirst, LoneRecord{topic, rec.Partition, rec.Offset, shortened(string(id)), rec.Timestamp.UTC()})
		return nil
	})
	if errors.Is(err, errListed) {
		return nil
	}
	return err
}
