package main

import (
	"context"
	"errors"
	"flag"
	"math"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/admin"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

func repairVerb() verb {
	return verb{
		Name:    "repair",
		Summary: "compares the outbox with Kafka by event id, and publishes the missing events, after --publish",
		Detail: "It runs beside a connector, or without one whose slot is lost. An event may still be on its\n" +
			"way until the slot has confirmed it: repair waits for that. Without --publish it publishes\n" +
			"nothing. It can be ended and repeated at any time.",
		Example: "cdc-outbox repair -c cdc-outbox.yaml --since 24h\n" +
			"cdc-outbox repair -c cdc-outbox.yaml --publish\n" +
			"cdc-outbox repair -c cdc-outbox.yaml --give-up --yes   # leaves out what is missing of an accepted gap",
		Prepare: func(flags *flag.FlagSet) action {
			o := declareAudit(flags, formerTopic)
			publish := flags.Bool("publish", false, "publish the missing events; otherwise only list them")
			giveUp := flags.Bool("give-up", false, "compare and publish nothing: what is missing of an accepted gap stays missing, and retention goes on; after --yes")
			yes := flags.Bool("yes", false, "with --give-up: do it, not only say what would be done")
			repair := reported(o.adminFlags, o.options, func(ctx context.Context, cfg *config.Config, opts admin.AuditOptions) (*admin.RepairReport, error) {
				return admin.Repair(ctx, cfg, opts, *publish)
			})
			forget := reported(o.adminFlags, o.options, func(ctx context.Context, cfg *config.Config, opts admin.AuditOptions) (*admin.GivenUpGap, error) {
				return admin.GiveUpGap(ctx, cfg, *yes, opts.Notes)
			})
			return func(ctx context.Context, p *program) error {
				switch {
				case *giveUp && (*publish || o.chooses()):
					return failure.Configf("leave them out", "repair --give-up is about the whole accepted gap, and takes neither --publish nor a choice of rows")
				case *giveUp:
					return forget(ctx, p)
				case *yes:
					return failure.Configf("to publish the missing events: --publish", "repair takes --yes only with --give-up")
				}
				return repair(ctx, p)
			}
		},
	}
}

func verifyVerb() verb {
	return verb{
		Name:    "verify",
		Summary: "tells whether all events of the outbox are in Kafka, for a cron job",
		Detail: "It compares by event id, as repair does, and changes nothing. Exit code 3 if events are\n" +
			"missing, 2 if of some of them nothing is known. With --content it also compares each row, as\n" +
			"published now, with its record: exit code 3 if they differ, 2 if the row was changed since.",
		Example: "cdc-outbox verify -c cdc-outbox.yaml --since 24h\n" +
			"cdc-outbox verify -c cdc-outbox.yaml --since 24h --content",
		Prepare: func(flags *flag.FlagSet) action {
			o := declareAudit(flags, formerTopic)
			content := flags.Bool("content", false, "compare key, value and headers, too; 100 bytes more on disk for a row, 60 for a record")
			options := func(p *program) (admin.AuditOptions, error) {
				opts, err := o.options(p)
				opts.Content = *content
				return opts, err
			}
			return reported(o.adminFlags, options, admin.Verify)
		},
	}
}

func replayVerb() verb {
	return verb{
		Name:    "replay",
		Summary: "publishes events of the outbox or of a topic once more, marked, after --publish",
		Detail: "It takes the rows of a time, with ids, keys or transactions, or with --from-topic the records\n" +
			"of a topic, also by position, and publishes them in order, to their topics or to another one,\n" +
			"with the header cdc-replay. A repetition under the same --name goes on where the last one\n" +
			"ended. Without --publish it publishes nothing.",
		Example: "cdc-outbox replay -c cdc-outbox.yaml --name monday --since 2026-11-23T00:00:00Z --until 2026-11-24T00:00:00Z\n" +
			"cdc-outbox replay -c cdc-outbox.yaml --name order-42 --key 42 --to replays --rate 100 --publish\n" +
			"cdc-outbox replay -c cdc-outbox.yaml --name again --from-topic outbox.event.order --from-lsn 0/16B3748 --to-lsn 0/16B4000",
		Prepare: prepareReplay,
	}
}

func prepareReplay(flags *flag.FlagSet) action {
	o := declareReplay(flags)
	fromTable := reported(o.adminFlags, o.ofTable, admin.Replay)
	fromTopic := reported(o.adminFlags, o.ofTopic, admin.ReplayTopic)
	return func(ctx context.Context, p *program) error {
		switch {
		case *o.name == "":
			return failure.Configf("give it a name, for example --name monday", "replay needs a --name, under which a repetition goes on")
		case *o.fromTopic != "":
			return fromTopic(ctx, p)
		}
		return fromTable(ctx, p)
	}
}

// replayFlags are the flags of replay.
type replayFlags struct {
	*auditFlags
	*onceMoreFlags
	keys            texts
	offsets         offsets
	fromLSN, toLSN  position
	name, fromTopic *string
}

// onceMoreFlags are the flags of verbs that publish rows once more.
type onceMoreFlags struct {
	to      *string
	rate    *uint
	publish *bool
}

func declareOnceMore(flags *flag.FlagSet) *onceMoreFlags {
	return &onceMoreFlags{
		to:      flags.String("to", "", "publish all to this `TOPIC`; otherwise each to its own"),
		rate:    flags.Uint("rate", 0, "publish at most `N` events a second; 0 means no limit"),
		publish: flags.Bool("publish", false, "publish the events; otherwise only list them"),
	}
}

// named are the flags' for a replay with the name.
func (o *onceMoreFlags) named(name string) admin.ReplayOptions {
	return admin.ReplayOptions{Name: name, To: *o.to, Rate: int(min(*o.rate, math.MaxInt32)), Publish: *o.publish}
}

func declareReplay(flags *flag.FlagSet) *replayFlags {
	o := &replayFlags{
		auditFlags:    declareAudit(flags, "only rows that are routed to this `TOPIC`; repeatable"),
		onceMoreFlags: declareOnceMore(flags),
		name:          flags.String("name", "", "the `NAME` of the replay, the value of cdc-replay"),
		fromTopic:     flags.String("from-topic", "", "take the records of this `TOPIC`, not the rows of the table"),
	}
	flags.Var(&o.keys, "key", "only events with this `KEY`; repeatable")
	flags.Var(&o.fromLSN, "from-lsn", "with --from-topic: only transactions from this commit `LSN` on, as in cdc-lsn")
	flags.Var(&o.toLSN, "to-lsn", "with --from-topic: only transactions up to this commit `LSN`")
	flags.Var(&o.offsets, "offsets", "with --from-topic: only records at `PARTITION:FROM-TO`, both included; repeatable")
	return o
}

// ofTable are the flags' for a replay from the table.
func (o *replayFlags) ofTable(p *program) (opts admin.ReplayOptions, err error) {
	switch {
	case o.fromLSN.LSN+o.toLSN.LSN != 0 || len(o.offsets) > 0:
		return opts, failure.Configf("name the topic that has them, by --from-topic; or choose rows by --since, --until, --id, --key or --xid",
			"a row has no position: only records have cdc-lsn and an offset")
	case o.since.IsZero() && o.until.IsZero() && len(o.ids)+len(o.keys)+len(o.topics) == 0 && o.xids.XIDs == (admin.XIDs{}):
		return opts, failure.Configf("for all rows until now: --until 0s", "replay needs --since, --until, --id, --key, --topic or --xid")
	}
	opts = o.named(*o.name)
	opts.AuditOptions, err = o.options(p)
	opts.Keys = o.keys
	return opts, err
}

// ofTopic are the flags' for a replay from a topic.
func (o *replayFlags) ofTopic(p *program) (opts admin.TopicReplayOptions, err error) {
	switch {
	case o.xids.XIDs != (admin.XIDs{}):
		return opts, failure.Configf("choose its records by --from-lsn and --to-lsn, the value of cdc-lsn", "--xid chooses rows of the table, and --from-topic was given")
	case len(o.topics) > 0:
		return opts, failure.Configf("leave it out", "--topic chooses rows of the table, and --from-topic was given")
	case o.toLSN.LSN != 0 && o.toLSN.LSN < o.fromLSN.LSN:
		return opts, failure.Configf("give an earlier --from-lsn", "no transaction is from %s on and up to %s", &o.fromLSN, &o.toLSN)
	case o.since.IsZero() && o.until.IsZero() && len(o.ids)+len(o.keys)+len(o.offsets) == 0 && o.fromLSN.LSN+o.toLSN.LSN == 0:
		return opts, failure.Configf("for all records until now: --until 0s", "replay needs --since, --until, --id, --key, --from-lsn, --to-lsn or --offsets")
	}
	common, err := o.options(p)
	return admin.TopicReplayOptions{
		From: *o.fromTopic, Since: common.Since, Until: common.Until, IDs: common.IDs, Keys: o.keys,
		LSNs: admin.LSNs{From: o.fromLSN.LSN, To: o.toLSN.LSN}, Offsets: o.offsets,
		Name: *o.name, To: *o.to, Rate: int(min(*o.rate, math.MaxInt32)), Publish: *o.publish,
		List: common.List, Dir: common.Dir, Timeout: common.Timeout, Notes: common.Notes,
	}, err
}

// formerTopic is the use of --topic where records count, wherever they are.
const formerTopic = "look in this `TOPIC`, too, as after a change of route.topic; repeatable"

// auditFlags are the flags of the verbs that compare the outbox with Kafka.
type auditFlags struct {
	*adminFlags
	since, until moment
	ids, topics  texts
	xids         xids
	list         *uint
	dir          *string
	timeout      *time.Duration
}

// declareAudit declares them; topic is the use of --topic.
func declareAudit(flags *flag.FlagSet, topic string) *auditFlags {
	o := &auditFlags{
		adminFlags: declareAdmin(flags),
		list:       flags.Uint("list", 20, "list at most `N` events"),
		dir:        flags.String("tmp", "", "the `DIRECTORY` for the ids: 72 bytes for a row, 32 for a record"),
		timeout:    flags.Duration("timeout", 2*time.Minute, "how long to wait for the slot, and for brokers that do not answer"),
	}
	flags.Var(&o.since, "since", "only rows from this `TIME` on: 2026-11-01T00:00:00Z, or 24h for so long ago")
	flags.Var(&o.until, "until", "only rows before this `TIME`")
	flags.Var(&o.ids, "id", "only the row with this event `ID`; repeatable")
	flags.Var(&o.xids, "xid", "only rows of the transaction `N`, of N-M, or from N- on, as in cdc-xid")
	flags.Var(&o.topics, "topic", topic)
	return o
}

// options are the flags' for the audit.
func (o *auditFlags) options(p *program) (admin.AuditOptions, error) {
	if err := usable(*o.timeout, &o.since); err != nil {
		return admin.AuditOptions{}, err
	}
	if !o.since.IsZero() && !o.until.IsZero() && !o.since.Before(o.until.Time) {
		return admin.AuditOptions{}, failure.Configf("give an earlier --since", "no row is from %s on and before %s", &o.since, &o.until)
	}
	return admin.AuditOptions{
		Since: o.since.Time, Until: o.until.Time, IDs: o.ids, XIDs: o.xids.XIDs, Topics: o.topics,
		List: int(*o.list), Dir: *o.dir, Timeout: *o.timeout, Notes: p.stderr,
	}, nil
}

// chooses reports whether the flags choose rows.
func (o *auditFlags) chooses() bool {
	return !o.since.IsZero() || !o.until.IsZero() || len(o.ids)+len(o.topics) > 0 || o.xids.XIDs != (admin.XIDs{})
}

// usable refuses a timeout that is over, and a time still to come.
func usable(timeout time.Duration, since *moment) error {
	switch {
	case timeout <= 0:
		return failure.Configf("leave it out, or give for example --timeout 5m", "--timeout %s is no time to wait", timeout)
	case since.After(time.Now()):
		return failure.Configf("give a time that is over, or 24h for so long ago", "--since %s is in the future", since)
	}
	return nil
}

// moment is a flag with a time, or with a duration before the present.
type moment struct{ time.Time }

// Set implements flag.Value.
func (m *moment) Set(text string) error {
	if ago, err := time.ParseDuration(text); err == nil {
		m.Time = time.Now().Add(-ago)
		return nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return errors.New("write a time with its zone, as 2026-11-01T00:00:00Z, or 24h for so long ago")
	}
	m.Time = at
	return nil
}

// String implements flag.Value.
func (m *moment) String() string {
	if m == nil || m.IsZero() {
		return ""
	}
	return m.Format(time.RFC3339)
}

// xids is a flag with numbers of transactions.
type xids struct{ admin.XIDs }

// Set implements flag.Value.
func (x *xids) Set(text string) (err error) {
	x.XIDs, err = admin.ParseXIDs(text)
	return err
}

// String implements flag.Value.
func (x *xids) String() string { return x.XIDs.String() }

// position is a flag with a position in the log.
type position struct{ pg.LSN }

// Set implements flag.Value.
func (l *position) Set(text string) (err error) {
	if l.LSN, err = pg.ParseLSN(text); err != nil || l.LSN == 0 || !strings.EqualFold(l.LSN.String(), text) {
		return errors.New("write the position as cdc-lsn has it, for example 0/16B3748")
	}
	return nil
}

// String implements flag.Value.
func (l *position) String() string {
	if l == nil || l.LSN == 0 {
		return ""
	}
	return pg.LSNText(l.LSN)
}

// offsets is a repeatable flag with places in a topic.
type offsets []admin.OffsetRange

// Set implements flag.Value.
func (o *offsets) Set(text string) error {
	r, err := admin.ParseOffsets(text)
	*o = append(*o, r)
	return err
}

// String implements flag.Value.
func (o *offsets) String() string { return "" }

// texts is a flag that may be repeated.
type texts []string

// Set implements flag.Value.
func (t *texts) Set(text string) error {
	*t = append(*t, text)
	return nil
}

// String implements flag.Value.
func (t *texts) String() string { return "" }
