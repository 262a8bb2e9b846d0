package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/base/catchup"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/quarantine"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// compare finds the missing rows. Tables and topics are read side by side; then
// it waits until the slot has confirmed the snapshot's rows, and reads what has
// come to the topics since.
func (a *auditor) compare(ctx context.Context) (err error) {
	if a.held, err = catalog.HoldSnapshot(ctx, a.cfg.Source.URL.Reveal(), a.behind); err != nil {
		return err
	}
	if err := a.fixEnd(ctx); err != nil {
		return err
	}
	a.topics = audit.NewTopics(ctx, a.cluster.client, a.ids, a.readOptions(), a.everywhere()...)
	defer a.tell()()
	a.rows.Snapshot, a.rows.Topics = a.held.Name, a.topics
	if err := a.topics.Beside(func(ctx context.Context) error {
		for _, topic := range a.also {
			if _, err := a.topics.Index(topic); err != nil {
				return err
			}
		}
		return a.ofCondition(a.readRows(ctx))
	}); err != nil {
		return err
	}
	if err := a.awaitSlot(ctx); err != nil {
		return err
	}
	if err := a.parked(ctx); err != nil {
		return err
	}
	if err := a.topics.Finish(ctx); err != nil {
		return err
	}
	if err := a.judge(); err != nil {
		return err
	}
	return a.list(ctx)
}

// parked has the events in the quarantine count as published: they will be, in the order of
// their keys, unless an operator leaves them out. An event released since is in its topic by
// the time of Finish. To a replay, they are no records.
func (a *auditor) parked(ctx context.Context) error {
	if a.cfg.Errors.OnBadEvent != transform.BadEventQuarantine {
		return nil
	}
	log, err := wiring.OpenQuarantine(a.cfg)
	if err != nil {
		return err
	}
	defer log.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, a.opts.Timeout, fmt.Errorf("no answer within %s", a.opts.Timeout))
	defer cancel()
	contents, err := log.Read(ctx, quarantine.None)
	if err != nil {
		return err
	}
	for _, e := range contents.Entries {
		if e.ID == nil || a.again != nil {
			continue
		}
		if err := a.ids.Record(e.ID, audit.Anywhere, audit.NoSpot); err != nil {
			return err
		}
	}
	if keys := len(contents.Units()); keys > 0 {
		a.result.Limits = append(a.result.Limits, fmt.Sprintf("%d keys are in the quarantine: their other events are not published before the parked ones", keys))
	}
	return nil
}

// judge compares rows and records.
func (a *auditor) judge() error {
	known := a.topics.Known
	if a.again != nil {
		known = func(*audit.Entry) bool { return true }
	}
	counts, err := a.ids.Compare(func(e *audit.Entry) bool {
		is := known(e)
		if !is {
			a.unknown.add(e)
		}
		return is
	})
	if err != nil {
		return err
	}
	if a.again != nil && counts.Records > 0 {
		if err := forgets(a.topics, a.readOptions(), a.again.name, "--since, --id or --key"); err != nil {
			return err
		}
	}
	r := a.result
	apart := a.rows.Nameless + a.rows.Unrouted + a.waiting
	r.Rows, r.Found, r.Missing, r.Unknown = counts.Rows+apart, counts.Found, counts.Missing, counts.Unknown+apart
	a.twins = counts.Twins
	r.RowSum, r.FoundSum = counts.RowSum.String(), counts.FoundSum.String()
	r.Records, r.Repeated = counts.Records, counts.Repeated
	if a.again == nil {
		r.Limits = append(append(r.Limits, a.limits()...), a.topics.Limits()...)
	}
	return nil
}

// limits tell of everything hidden by the table and the configuration.
func (a *auditor) limits() (lines []string) {
	if a.rows.Nameless > 0 {
		lines = append(lines, fmt.Sprintf("%d rows have no event id, so no record can be told to be theirs", a.rows.Nameless))
	}
	if a.rows.Unrouted > 0 {
		lines = append(lines, fmt.Sprintf("%d rows have no valid topic, so they are bad events", a.rows.Unrouted))
	}
	if a.waiting > 0 {
		lines = append(lines, fmt.Sprintf("%d rows are not marked as published: they wait for a poll, or their mark is NULL", a.waiting))
	}
	if a.twins > 0 {
		lines = append(lines, fmt.Sprintf("%d rows have the id of another row that is missing", a.twins))
	}
	if after := a.cfg.Retention.After; after > 0 && a.opts.Since.Before(time.Now().Add(-after)) {
		lines = append(lines, fmt.Sprintf("rows older than %s are deleted (retention.after): of their events nothing is known", after))
	}
	if a.cfg.Errors.OnBadEvent == transform.BadEventQuarantine {
		lines = append(lines, "errors.on_bad_event is quarantine: a parked event counts as found; one that an operator left out counts as missing")
	}
	if a.cfg.Errors.OnBadEvent == transform.BadEventSkip {
		lines = append(lines, "errors.on_bad_event is skip: an event that was skipped counts as missing")
	}
	if a.cfg.Source.Mode == config.ModeMessage {
		lines = append(lines, "messages are in the log only: of their events nothing is known")
	}
	return lines
}

// readOptions are those of the topics. The time of a record says something of
// the row's only where no column gives it.
func (a *auditor) readOptions() audit.ReadOptions {
	if a.again != nil {
		return audit.ReadOptions{Patience: a.opts.Timeout, Note: a.note, Allow: a.allow, Stuck: a.cluster.stuck, Counts: a.again.made}
	}
	since := a.opts.Since
	if a.opts.marked != nil {
		since = a.opts.marked.at
	}
	return audit.ReadOptions{
		Since: since, Timed: a.timed(), Patience: a.opts.Timeout, Note: a.note, Allow: a.allow, Stuck: a.cluster.stuck, News: a.news, Contents: a.rows.Contents,
		Counts: func(r *kgo.Record) bool { // a replay's dead letter says nothing of the event itself
			_, replayed := transform.Header(r.Headers, transform.HeaderReplay)
			return r.Topic != a.cfg.Errors.DeadLetterTopic || !replayed
		},
	}
}

// timed tells whether a record is never older than its row, but for the clocks. A
// column without a zone may be of any.
func (a *auditor) timed() bool {
	return a.cfg.Event.Timestamp == "" && (a.opts.marked != nil || !slices.ContainsFunc(a.tables, func(t *auditedTable) bool { return !t.Zoned }))
}

// allow is the remedy where brokers do not let a topic be read.
func (a *auditor) allow(topic string) string {
	return a.cluster.cfg.Tools().Allow("Read --operation DescribeConfigs", topic)
}

// everywhere are the topics with events of any rows.
func (a *auditor) everywhere() []string {
	return slices.Concat(a.opts.Topics, letterTopics(a.cfg))
}

// letterTopics has the topic of the dead letters, if the connector writes any.
func letterTopics(cfg *config.Config) []string {
	if cfg.Errors.OnBadEvent == transform.BadEventDeadLetter {
		return []string{cfg.Errors.DeadLetterTopic}
	}
	return nil
}

// fixEnd notes the end of the log behind the snapshot, and refuses to wait longer for a
// slot without a reader.
func (a *auditor) fixEnd(ctx context.Context) error {
	if a.polls() || a.behind != "" {
		return nil // a row that was marked was published before
	}
	open, err := a.readable(ctx)
	if err != nil {
		return err
	}
	if !open {
		a.result.Limits = append(a.result.Limits, fmt.Sprintf("slot %q cannot be read: rows written after the start of this command were not looked at", a.cfg.Source.Slot))
		return nil
	}
	a.wait = &catchup.Wait{Slot: a.cfg.Source.Slot}
	return a.awaitReader(ctx)
}

// readerPatience is how long a connector that was just started may take to read the slot.
var readerPatience = 10 * time.Second

// awaitReader fixes the end of the log at the first look, and waits for a reader of the
// slot.
func (a *auditor) awaitReader(ctx context.Context) error {
	var pace catchup.Pace
	deadline := time.Now().Add(min(readerPatience, a.opts.Timeout))
	for told := false; ; told = true {
		_, err := a.look(ctx, a.wait, pace.Ask())
		switch {
		case err != nil || a.wait.Last.Slot.Active:
			return err
		case time.Now().After(deadline):
			return &failure.Error{Class: failure.Transient, Remedy: "start `cdc-outbox run`, and repeat the command beside it; if that run ends with exit code 3: first `cdc-outbox setup --accept-gap --yes`",
				Err: fmt.Errorf("the connector is not running (nothing reads slot %q), so it is not known which events it will still publish", a.cfg.Source.Slot)}
		case !told:
			a.note(fmt.Sprintf("waiting for the connector: nothing reads slot %q", a.cfg.Source.Slot))
		}
		if err := pace.Rest(ctx); err != nil {
			return err
		}
	}
}

// readable tells whether the slot can be read, so that events may be on their way.
func (a *auditor) readable(ctx context.Context) (bool, error) {
	slot, exists, err := catalog.ReadSlot(ctx, a.conn, a.cfg.Source.Slot)
	if err != nil || !exists {
		return false, err
	}
	_, lost := slot.Lost()
	return !lost, nil
}

// awaitSlot waits until the events of all rows of the snapshot are in Kafka, if
// they ever get there.
func (a *auditor) awaitSlot(ctx context.Context) error {
	if a.polls() {
		return nil
	}
	var pace catchup.Pace
	deadline := time.Now().Add(a.opts.Timeout)
	for told := false; ; told = true {
		open, err := a.readable(ctx)
		switch {
		case err != nil:
			return err
		case a.wait != nil && open:
		case open && a.behind == "":
			return &failure.Error{Class: failure.Transient, Remedy: "repeat the command",
				Err: fmt.Errorf("slot %q was made meanwhile, and its reader may publish the same rows", a.cfg.Source.Slot)}
		case a.settle != nil:
			return a.settle(ctx)
		default:
			return nil
		}
		reached, err := a.look(ctx, a.wait, pace.Ask())
		if err != nil || reached {
			return err
		}
		if time.Now().After(deadline) {
			return &failure.Error{Class: failure.Transient, Remedy: "see `cdc-outbox status`, and repeat the command, with a longer --timeout",
				Err: fmt.Errorf("events may still be on their way after %s: %s", a.opts.Timeout, a.wait.Describe())}
		}
		if !told {
			a.note("waiting for what is on its way: " + a.wait.Describe())
		}
		if err := pace.Rest(ctx); err != nil {
			return err
		}
	}
}

// readRows reads the tables.
func (a *auditor) readRows(ctx context.Context) error {
	for _, t := range a.tables {
		err := a.rows.Read(ctx, t.Table, t.where(), a.row)
		if err == nil && t.waits != "" {
			err = a.count(ctx, t)
		}
		if err != nil {
			return err
		}
	}
	if a.xids != (XIDs{}) && a.rows.Count()+a.rows.Nameless+a.rows.Unrouted == 0 {
		return failure.Configf("a row written behind a SAVEPOINT has the number of the subtransaction, and an updated row that of the update: choose rows by --since and --until", "no row is of transaction %s", a.opts.XIDs)
	}
	if a.again != nil && len(a.again.topics) > 0 {
		return failure.Configf("write the topic as `cdc-outbox tail --from-table` shows it, and take rows of any time",
			"no row, of those chosen, is routed to topic %s", a.again.topics)
	}
	if a.again != nil && len(a.again.keys) > 0 {
		return failure.Configf("write the key as `cdc-outbox tail --from-table` shows it, and take rows of any time and topic",
			"no row, of those chosen, has the key %s", a.again.keys)
	}
	if len(a.asked) > 0 {
		return failure.Configf("write the id as `cdc-outbox tail --from-table` shows it, and take rows of any time, key and topic",
			"no row has the id %s", a.asked)
	}
	return nil
}

// count counts the rows without a mark of a poll.
func (a *auditor) count(ctx context.Context, t *auditedTable) error {
	where := append([]string{"(NOT (" + t.waits + ")) IS NOT TRUE"}, t.chosen...)
	return catalog.ReadRows(ctx, a.conn, catalog.Snapshot{
		Name: a.held.Name, Table: t.Name, Relation: t.Relation, Charset: t.Charset,
		Where: strings.Join(where, " AND "), AnyOrder: true, Only: t.Identity,
	}, func(row *pg.Row, _ [][]byte) error {
		ev, _ := a.router.Route(row) // a bad event has an id, too
		defer ev.Release()
		if a.again.passes(ev, ev.Record.Topic) {
			a.asked.saw(ev.ID)
			a.waiting++
		}
		return nil
	})
}

// row adds a row, whose other columns are not read.
func (a *auditor) row(row *audit.Row) error {
	if !a.again.passes(row.Event, row.Topic) {
		return nil
	}
	a.asked.saw(row.Event.ID)
	if a.again != nil && row.Topic != "" {
		row.Topic = a.again.topic(row.Topic)
	}
	if a.opts.marked != nil {
		row.Entry.At = a.opts.marked.at.UnixMicro()
	}
	return a.rows.Add(row)
}

// tell writes lines about the progress until stop is called.
func (a *auditor) tell() (stop func()) {
	began := time.Now()
	return audit.Telling(func() {
		records, ahead := a.topics.Progress()
		a.note(fmt.Sprintf("%s: read %d rows and %d records; %d records of the topics are ahead%s",
			time.Since(began).Round(time.Second), a.rows.Count(), records, ahead, a.topics.Left(time.Since(began))))
	})
}
