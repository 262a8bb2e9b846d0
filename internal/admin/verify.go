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

// Verification is an audit with the records of ids without a row.
type Verification struct {
	Audit
	// Alone counts event ids of the topics without a row in the tables, each once
	// for each topic. They are no error: rows may be deleted.
	Alone int64 `json:"alone"`
	// AloneFirst are the first of them, by topic, partition and offset.
	AloneFirst []LoneRecord `json:"alone_first"`
	// AloneWhy says what may have deleted the rows.
	AloneWhy string `json:"alone_why,omitempty"`
	// AloneIn are the topics searched for such ids; empty: none.
	AloneIn []string `json:"alone_in"`
	// AloneBeyond tells that route.topic may name more topics, without a row left.
	AloneBeyond bool `json:"alone_beyond"`
	// Content is the comparison of contents, if asked for.
	Content *ContentReport `json:"content,omitempty"`
}

// LoneRecord is a record without a row of its id.
type LoneRecord struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	ID        string    `json:"id"`
	Time      time.Time `json:"time"`
}

// Verify compares the rows of the outbox with the records in Kafka, by event id,
// as Repair does, and publishes nothing. Of all rows, or the rows of a time, Verify also
// finds records without a row.
func Verify(ctx context.Context, cfg *config.Config, opts AuditOptions) (_ *Verification, err error) {
	defer func() { err = interrupted(err) }()
	a, err := newAuditor(ctx, "verify", cfg, opts)
	if err != nil {
		return nil, err
	}
	defer a.close()
	v := &Verification{AloneFirst: []LoneRecord{}, AloneIn: []string{}}
	lone := &lone{auditor: a}
	if len(opts.IDs) == 0 && opts.XIDs == (XIDs{}) { // else other records are of other rows
		if err := lone.open(); err != nil {
			return nil, err
		}
		defer lone.rest.Close()
	}
	if opts.Content {
		if cfg.Encoding.Changes() {
			return nil, failure.Configf("leave --content out", "records have the form of a schema (encoding), which cannot be compared with rows")
		}
		if cfg.ClaimCheck.On() && cfg.Event.CloudEvents.Mode == transform.CloudEventsStructured {
			return nil, failure.Configf("leave --content out", "large values are elsewhere, in the form of CloudEvents with times that rows do not know")
		}
		if a.rows.Contents, err = audit.NewContents(opts.Dir, letterTopics(cfg), opts.List); err != nil {
			return nil, err
		}
		defer a.rows.Contents.Close()
	}
	if err := a.compare(ctx); err != nil {
		return nil, err
	}
	if opts.Content {
		if v.Content, err = a.contents(ctx); err != nil {
			return nil, err
		}
	}
	v.Audit = *a.result
	if err := lone.find(ctx, v); err != nil {
		return nil, err
	}
	return v, v.verdict()
}

// verdict is nil if all events are in Kafka, for certain, and, with Content, as their
// rows are.
func (v *Verification) verdict() error {
	content := v.Content
	if content == nil {
		content = &ContentReport{}
	}
	switch {
	case v.Missing > 0:
		return failure.Lossf("cdc-outbox repair, which publishes them after --publish", "%d of %d events are not in Kafka", v.Missing, v.Rows)
	case content.Different > 0:
		return failure.Lossf("if the configuration or the table was changed since, that is why; otherwise find the writer of the records, and publish the rows once more: cdc-outbox replay --name NAME --id ID --publish",
			"the records of %d of %d events say something else than their rows", content.Different, v.Rows)
	case v.Unknown > 0:
		return failure.Configf("narrow the time by --since to what the topics keep", "of %d of %d events nothing is known", v.Unknown, v.Rows)
	case content.Changed > 0:
		return failure.Configf("see which program updates rows of the outbox: an update is not published",
			"%d of %d rows were changed since their events were published, so nobody knows whether the records are right", content.Changed, v.Rows)
	}
	return nil
}

// lone finds the records without a row among all rows: rows of other times, and rows
// written since the snapshot, have records, too.
type lone struct {
	*auditor
	rest *audit.Audit // its rows are the records without a row among those compared; nil: nobody asks
	any  bool
	// beyond tells that route.topic may name unknown topics.
	beyond bool
}

// open has the records looked for in all topics read, and in a fixed route.topic.
func (l *lone) open() (err error) {
	if l.rest, err = audit.New(l.opts.Dir); err != nil {
		return err
	}
	_, only, err := l.cfg.Route.Topics()
	if err != nil {
		return err
	}
	if l.beyond = only == ""; !l.beyond {
		l.also = []string{only}
	}
	l.news = newsFor(l.opts, time.Now())
	l.ids.Alone(l.add)
	return nil
}

// newsFor chooses the records of the time asked for, from before the start, as the rows
// of later records may not be visible yet.
func newsFor(opts AuditOptions, start time.Time) func(*kgo.Record) bool {
	until := start
	if at := opts.Until; !at.IsZero() && at.Before(start) {
		until = at
	}
	return func(rec *kgo.Record) bool {
		return !rec.Timestamp.Before(opts.Since) && rec.Timestamp.Before(until)
	}
}

func (l *lone) add(e *audit.Entry) error {
	l.any = true
	return l.rest.Row(e)
}

// find asks the tables for their ids now.
func (l *lone) find(ctx context.Context, v *Verification) error {
	if l.rest == nil {
		return nil
	}
	v.AloneIn, v.AloneBeyond = l.topics.Names(), l.beyond
	if !l.any {
		return nil
	}
	l.rows.Snapshot, l.rows.Contents = "", nil
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
	read := l.reread()
	err := l.rest.Missing(func(e *audit.Entry) error {
		if len(v.AloneFirst) >= l.opts.List {
			return errListed
		}
		rec, err := read.record(ctx, audit.Spot{Log: e.Topic, Partition: int32(e.Table), Offset: e.Order[1]}, e.Key)
		if err != nil || rec == nil { // retention deletes records as it does rows
			return err
		}
		id, _ := transform.Header(rec.Headers, transform.HeaderID)
		v.AloneFirst = append(v.AloneFirst, LoneRecord{rec.Topic, rec.Partition, rec.Offset, shortened(string(id)), rec.Timestamp.UTC()})
		return nil
	})
	if errors.Is(err, errListed) {
		return nil
	}
	return err
}
