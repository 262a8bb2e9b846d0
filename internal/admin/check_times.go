package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// clocksApart is how far two clocks may be apart until check warns: ages and lags are
// compared across them, and alerts begin at tens of seconds.
const clocksApart = 10 * time.Second

// databaseClock compares the database's clock with this machine's.
func (d *doctor) databaseClock(ctx context.Context) {
	var give time.Duration
	err := catalog.Pooled(ctx, d.conn, func() (err error) {
		d.ahead, give, err = catalog.ClockAhead(ctx, d.conn)
		return err
	})
	if err != nil {
		d.fail("postgresql.clock", err)
		return
	}
	d.clock("postgresql.clock", "PostgreSQL's clock", d.ahead, give,
		"the header cdc-time is the database's, and ages and lags are compared across the two clocks: alerts may fire too early or too late")
}

// clock judges the difference between a clock and this machine's.
func (d *doctor) clock(name, whose string, ahead, give time.Duration, so string) {
	if ahead.Abs() <= clocksApart+give {
		d.ok(name, "%s and this machine's agree within %s", whose, max(ahead.Abs()+give, time.Millisecond).Round(time.Millisecond))
		return
	}
	side := "ahead of"
	if ahead < 0 {
		side = "behind"
	}
	d.warn(name, "set the clocks right (NTP) on this machine, where PostgreSQL runs, and where Kafka does",
		"%s is %s %s this machine's: %s", whose, ahead.Abs().Round(time.Second), side, so)
}

// controllerClock compares the clock of Kafka's controller with this machine's, if the
// cluster shows the former.
func (d *doctor) controllerClock(ctx context.Context, c *cluster) {
	const name = "kafka.clock"
	ahead, give, err := broker.ControllerAhead(ctx, c.client)
	if err != nil {
		d.skip(name, "the cluster does not tell its time: "+err.Error())
		return
	}
	d.clock(name, "the clock of Kafka's controller", ahead, give,
		"records have the time of this machine, by which brokers delete them (retention.ms), or refuse them (message.timestamp.before.max.ms, after.max.ms)")
}

// timesOf reads the event topics' treatment of record times.
func (d *doctor) timesOf(ctx context.Context, c *cluster) {
	for _, topic := range d.topics {
		settings, err := c.topicSettings(ctx, topic)
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			continue
		}
		d.times = append(d.times, topicTimes{topic, sink.TimesOf(settings), err})
	}
}

// topicTimes is a topic's treatment of record times.
type topicTimes struct {
	topic string
	sink.Times
	err error // the reason why they are unknown
}

// backlogAge is the age of the oldest unconfirmed event, at most or at least.
type backlogAge struct {
	age   time.Duration
	least bool
}

func (w backlogAge) String() string {
	if w.least {
		return fmt.Sprintf("%s or more", w.age.Round(time.Second))
	}
	return fmt.Sprintf("up to %s", w.age.Round(time.Second))
}

// oldest is the age of the oldest unconfirmed event, as far as known.
func (d *doctor) oldest(ctx context.Context) (oldest backlogAge, err error) {
	if d.polls() {
		err = d.polled(ctx, func(t *poll.Table) error {
			return catalog.Pooled(ctx, d.conn, func() error {
				backlog, err := poll.ReadBacklog(ctx, d.conn, t)
				oldest.age = max(oldest.age, backlog.Oldest)
				return err
			})
		})
		return oldest, err
	}
	if d.slot == nil || d.server == nil || distance(d.slot.ConfirmedFlush, d.server.FlushLSN) == 0 {
		return backlogAge{}, nil
	}
	if !d.saved.IsZero() {
		return backlogAge{age: time.Since(d.saved)}, nil
	}
	age, _, err := catalog.WALAge(ctx, d.conn, d.slot.ConfirmedFlush)
	return backlogAge{age, true}, err
}

// recordTimes judges whether event topics accept and keep the times of records.
func (d *doctor) recordTimes(ctx context.Context) {
	if len(d.times) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	oldest, err := backlogAge{}, error(nil)
	if d.conn != nil && d.asksForTimes() {
		oldest, err = d.oldest(ctx)
	}
	for _, t := range d.times {
		name := "kafka.record_time " + t.topic
		switch {
		case err != nil:
			d.skip(name, err.Error())
		case !d.asksForTimes():
			d.publishedTimes(name, t)
		case t.err != nil:
			d.warn(name, d.cfg.Sink.Kafka.Tools().Allow("DescribeConfigs", t.topic)+"; or set event.record_time to published",
				"retention.ms of topic %q is not known (%v), so that records with a time of before may be deleted as soon as they are acknowledged", t.topic, t.err)
		default:
			d.askedTimes(name, t, oldest)
		}
	}
}

// asksForTimes is whether records have another time than their publication's.
func (d *doctor) asksForTimes() bool {
	return d.cfg.Event.Timestamp != "" || d.cfg.Event.RecordTime == transform.RecordTimeCommit
}

// publishedTimes judges a topic for records with the time of writing.
func (d *doctor) publishedTimes(name string, t topicTimes) {
	const keeps = "records have the time at which they are written, so that none is deleted early"
	for _, bound := range []sink.Bound{t.Before, t.After} {
		if bound.Max > 0 && bound.Max <= clocksApart {
			d.warn(name, d.cfg.Sink.Kafka.Tools().Set(t.topic, bound.Setting+"=3600000"),
				"%s of topic %q is %s: a clock that is further off, or a broker that is away for longer, has records refused until they are written again", bound.Setting, t.topic, bound.Max)
			return
		}
	}
	d.ok(name, keeps)
}

// askedTimes judges a topic for records with a time of before.
func (d *doctor) askedTimes(name string, t topicTimes, oldest backlogAge) {
	kafka := *d.cfg.Sink.Kafka
	which := "the time of the commit"
	if d.cfg.Event.Timestamp != "" {
		which = "the time in " + d.cfg.Event.Timestamp
	}
	const instead = "those have the time at which they are written, and the header cdc-timestamp has the other"
	replaced := func(setting string, bound time.Duration, text string, args ...any) {
		d.warn(name, kafka.Tools().Set(t.topic, fmt.Sprintf("%s=%d", setting, bound.Milliseconds()))+"; or set event.record_time to published",
			text+"; "+instead, args...)
	}
	switch {
	case t.Appended:
		d.ok(name, "brokers give records the time at which they are appended (message.timestamp.type=LogAppendTime)")
	case t.Retention > 0 && oldest.age > t.Retention/2:
		replaced("retention.ms", roundUp(4*oldest.age), "events wait that are %s old, and topic %q keeps records for %s: older ones than half of that would soon be deleted",
			oldest, t.topic, t.Retention)
	case t.Before.Max > 0 && oldest.age > t.Before.Max:
		replaced(t.Before.Setting, roundUp(4*oldest.age), "events wait that are %s old, and %s of topic %q is %s: brokers refuse older ones",
			oldest, t.Before.Setting, t.topic, t.Before.Max)
	case t.After.Max > 0 && d.cfg.Event.Timestamp == "" && d.ahead > t.After.Max:
		replaced(t.After.Setting, roundUp(2*d.ahead), "PostgreSQL's clock is %s ahead of this machine's, and %s of topic %q is %s: brokers refuse times that are further ahead",
			d.ahead.Round(time.Second), t.After.Setting, t.topic, t.After.Max)
	case t.Retention > 0:
		d.ok(name, "records have %s; where it is older than %s, half of retention.ms, %s", which, t.Retention/2, strings.Replace(instead, "those have", "they have", 1))
	default:
		d.ok(name, "records have %s; the topic deletes nothing by time", which)
	}
}

// roundUp makes a setting of a duration: whole hours.
func roundUp(of time.Duration) time.Duration { return of.Truncate(time.Hour) + time.Hour }
