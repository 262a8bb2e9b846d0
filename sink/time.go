package sink

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// The time of a record decides when brokers delete the record, and whether they take it at
// all. Invariants:
//
//  1. No event is refused, passed over or deleted for a time chosen by the connector: the
//     time of the attempt to write. A refusal then means a wrong clock, and is waited for.
//  2. A requested time (event.timestamp, or the commit's) gives way to the time of the
//     attempt, and becomes a header, if brokers refuse it, or would soon delete the record.

// stamp gives the record its time.
func stamp(ev *transform.Event, now time.Time) {
	if ev.Record.Timestamp = ev.Asked; ev.Asked.IsZero() {
		ev.Record.Timestamp = now
	}
}

// Times are a topic's settings for the times of records.
type Times struct {
	Appended  bool          // brokers replace the times by their own
	Retention time.Duration // 0: no record is deleted for its time
	// Before and After bound the distance from the broker's time.
	Before, After Bound
}

// Bound is a setting and its value; the zero Bound is none.
type Bound struct {
	Setting string
	Max     time.Duration
}

// The settings of a topic for the times of records.
const (
	cleanupPolicy  = "cleanup.policy"
	retentionTime  = "retention.ms"
	timestampType  = "message.timestamp.type"
	mostBefore     = "message.timestamp.before.max.ms"
	mostAfter      = "message.timestamp.after.max.ms"
	mostDifference = "message.timestamp.difference.max.ms" // in place of the two, before Kafka 3.6
)

// TimesOf reads the settings of a topic.
func TimesOf(settings broker.Settings) Times {
	found := Times{Appended: settings[timestampType] == "LogAppendTime"}
	if strings.Contains(settings[cleanupPolicy], "delete") && !found.Appended {
		found.Retention = bound(settings, retentionTime).Max
	}
	found.Before, found.After = bound(settings, mostBefore), bound(settings, mostAfter)
	if settings[mostBefore] == "" && settings[mostAfter] == "" {
		found.Before, found.After = bound(settings, mostDifference), bound(settings, mostDifference)
	}
	return found
}

// bound is zero where the setting has no value or no bound.
func bound(settings broker.Settings, name string) Bound {
	ms, err := strconv.ParseInt(settings[name], 10, 64)
	if err != nil || ms <= 0 || ms > math.MaxInt64/int64(time.Millisecond) {
		return Bound{}
	}
	return Bound{name, time.Duration(ms) * time.Millisecond}
}

// times are a topic's Times, as far as known.
type times struct {
	Times
	known bool
	text  string // for people: the settings
}

const (
	// timesAge is the greatest age of an answer about a topic's times.
	timesAge = time.Minute
	// timesPatience bounds the wait for such an answer.
	timesPatience = 2 * time.Second
)

// late gives the event the time of publication if the requested time has used up half of the
// topic's retention: consumers need the rest to read the event. late reports whether the time
// was replaced. With ask, brokers are asked about the topic at first, and now and then.
func (k *Kafka) late(ctx context.Context, t *topic, ev *transform.Event, ask bool) bool {
	if ask && (!t.timed || time.Since(t.timesAsked) > timesAge) {
		t.times, t.timesAsked, t.timed = k.timesOf(ctx, t), time.Now(), true
	}
	keep := t.times.Retention
	return keep > 0 && time.Since(ev.Asked) > keep/2 && ev.Retime()
}

// timesOf asks for the topic's settings. After a failure the known times stay.
func (k *Kafka) timesOf(ctx context.Context, t *topic) times {
	ctx, cancel := context.WithTimeout(ctx, timesPatience)
	defer cancel()
	settings, err := broker.TopicSettings(ctx, k.client, t.name, cleanupPolicy, retentionTime, timestampType, mostBefore, mostAfter, mostDifference)
	if err != nil {
		return t.times
	}
	return times{TimesOf(settings), true, settings.String()}
}

// untimely deals with a batch refused for the time of a record: requested times give way to
// the time of the next attempt. asked: there were any. If not, the clocks of this machine and
// of the broker differ by more than the topic allows.
func (k *Kafka) untimely(ctx context.Context, s *batch) (asked bool) {
	first, cause := 0, s.err
	if named := s.said.named(len(s.events)); len(named) > 0 {
		for _, i := range named {
			asked = s.events[i].Retime() || asked
		}
		first, cause = named[0], s.cause(named[0])
	} else {
		for i := range s.events {
			asked = s.events[i].Retime() || asked
		}
	}
	if asked {
		return true
	}
	rec := &s.events[first].Record
	settings := ""
	if t := k.topics[rec.Topic]; t != nil {
		if found := k.timesOf(ctx, t); found.known {
			settings = " (" + found.text + ")"
		}
	}
	reason := fmt.Sprintf("brokers do not take records of topic %q with the time of this machine, %s%s: %v",
		rec.Topic, rec.Timestamp.UTC().Format(time.RFC3339), settings, cause)
	remedy := "set the clocks of this machine and of the brokers right (NTP); or let brokers set the time: " +
		k.cfg.Tools().Set(rec.Topic, "message.timestamp.type=LogAppendTime")
	k.complain("Kafka refuses records for their time, retrying", zap.String("topic", rec.Topic), zap.Int32("partition", rec.Partition),
		zap.String("error", reason), zap.String("remedy", remedy))
	k.refusing = true
	k.observer.Refused(reason, remedy)
	return false
}

// goOn notes that brokers take records.
func (k *Kafka) goOn() {
	if k.refusing {
		k.refusing = false
		k.observer.Refused("", "")
	}
}
