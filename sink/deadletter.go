package sink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// The headers of a dead letter after the original headers. Values are text; a NULL
// id is a null value.
const (
	headerReason    = "cdc-dlq-reason"    // a transform.Reason
	headerError     = "cdc-dlq-error"     // the error, for people
	headerTable     = "cdc-dlq-table"     // schema.table
	headerID        = "cdc-dlq-id"        // the event id
	headerLSN       = "cdc-dlq-lsn"       // commit LSN, X/X; none for a polled row
	headerSeq       = "cdc-dlq-seq"       // index within the transaction; likewise
	headerTopic     = "cdc-dlq-topic"     // the intended topic; may be empty
	headerTimestamp = "cdc-dlq-timestamp" // the requested time, or the commit's; RFC 3339
	headerCut       = "cdc-dlq-cut"       // the cut parts, only after a cut: see shorten
)

// DeadLetter implements Sink: it writes the original key, value and headers to
// the dead-letter topic, followed by the cdc-dlq- headers. The dead letter's
// own timestamp is now, so the topic's retention counts from here.
func (k *Kafka) DeadLetter(ctx context.Context, ev *transform.Event, bad *transform.BadEvent) error {
	if err := k.check(); err != nil {
		return err
	}
	ctx, release := k.connections.guard(ctx)
	defer release()
	if err := k.bury(ctx, ev, bad); err != nil {
		return k.stop(ctx, fmt.Errorf("write dead letter: %w", err))
	}
	return nil
}

func (k *Kafka) bury(ctx context.Context, ev *transform.Event, bad *transform.BadEvent) error {
	if k.deadLetter == "" {
		return failure.Configf("set errors.dead_letter_topic", "no dead-letter topic is set")
	}
	for {
		t, err := k.deadLetters(ctx)
		if err != nil {
			return err
		}
		letter, err := k.letter(ctx, ev, bad)
		if err != nil {
			return err
		}
		letter.Record.Partition = t.choose(&letter.Record)
		round := []placed{{Event: letter}}
		batches, err := k.write(ctx, round, k.tally(round))
		if err != nil {
			return err
		}
		if len(batches) == 0 {
			return k.learn(ctx, t)
		}
		if batches[0].by != k.client {
			continue
		}
		switch err = batches[0].err; {
		case judge(err) == topicGone:
			k.forget(t.name, err)
		case !k.cutLetters(letter, err):
			return k.refusedLetter(err)
		}
	}
}

// letter returns the dead letter of an event, cut to the size its topic takes. A large value is
// kept elsewhere, if the store can take it.
func (k *Kafka) letter(ctx context.Context, ev *transform.Event, bad *transform.BadEvent) (*transform.Event, error) {
	now := time.Now()
	_, value := ev.Plain()
	kept := &transform.Event{ID: ev.ID, Record: kgo.Record{Topic: k.deadLetter, Value: value, Headers: ev.PlainHeaders()}}
	if k.large(kept) {
		err := k.keep(ctx, []*transform.Event{kept})
		if _, unfit := errors.AsType[*transform.BadEvent](err); err != nil && !unfit {
			return nil, err
		}
	}
	letter := &transform.Event{Record: deadLetter(ev, &kept.Record, bad, now)}
	letter.Record.Topic, letter.Record.Partition = k.deadLetter, transform.PartitionByKey
	shorten(&letter.Record, k.letters.at(now))
	return letter, nil
}

// refusedLetter is the error of a refused dead letter.
func (k *Kafka) refusedLetter(err error) error {
	return failure.Configf(k.refusedLetterRemedy(err), "the broker refuses the dead letter for topic %q: %w", k.deadLetter, err)
}

// deadLetters returns the dead-letter topic. A missing topic is an error at once:
// an operator who asked for dead letters must know that none can be written.
func (k *Kafka) deadLetters(ctx context.Context) (*topic, error) {
	if t := k.topics[k.deadLetter]; t != nil {
		return t, nil
	}
	policy := missingFail
	if k.cfg.CreateTopics {
		policy = missingCreate
	}
	t, err := k.resolve(ctx, k.deadLetter, policy)
	if bad, ok := errors.AsType[*transform.BadEvent](err); ok {
		return nil, failure.Configf("set errors.dead_letter_topic to a legal topic name", "%w", bad.Err)
	}
	return t, err
}

func (k *Kafka) refusedLetterRemedy(err error) string {
	if badEvent(err).Reason == transform.ReasonRecordTooLarge {
		return LargerLettersCommand(k.cfg, k.deadLetter)
	}
	return fmt.Sprintf("check what the topic %s accepts (policies, schema validation, compaction without keys)", k.deadLetter)
}

// deadLetter returns the record of the dead letter, without topic and
// partition. kept has value and headers of the row.
func deadLetter(ev *transform.Event, kept *kgo.Record, bad *transform.BadEvent, now time.Time) kgo.Record {
	text := func(key, value string) kgo.RecordHeader {
		return kgo.RecordHeader{Key: key, Value: []byte(value)}
	}
	original := &ev.Record
	key, _ := ev.Plain()
	var position []kgo.RecordHeader
	if !ev.Position.IsZero() {
		position = []kgo.RecordHeader{
			text(headerLSN, ev.Position.CommitLSN.String()),
			text(headerSeq, strconv.FormatUint(uint64(ev.Position.Seq), 10)),
		}
	}
	headers := append(slices.Clip(kept.Headers),
		text(headerReason, string(bad.Reason)),
		text(headerError, bad.Err.Error()),
		text(headerTable, ev.Table),
		kgo.RecordHeader{Key: headerID, Value: ev.ID})
	headers = append(headers, position...)
	return kgo.Record{
		Key:       key,
		Value:     kept.Value,
		Timestamp: now,
		Headers: append(headers,
			text(headerTopic, original.Topic),
			text(headerTimestamp, ev.Time().UTC().Format(time.RFC3339Nano)),
		),
	}
}
