package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// RedriveOptions are the choices of Redrive.
type RedriveOptions struct {
	LetterOptions
	// Uncertain publishes also letters that an earlier redrive may have published.
	Uncertain bool
	// Rate is how many letters a second are published at most; 0: no limit.
	Rate int
	// Publish publishes them; otherwise Redrive only lists them.
	Publish bool
}

// Redriven says what became of the letters chosen. Each counts once, and Refused,
// Waiting and Uncertain are left out.
type Redriven struct {
	DeadLetterTopic string `json:"dead_letter_topic"`
	Letters         int64  `json:"letters"`
	// Before were redriven before.
	Before int64 `json:"redriven_before"`
	// Refused are letters without the whole record, and those that brokers refuse again.
	Refused int64 `json:"refused"`
	// Waiting are behind another letter of their key that was left out.
	Waiting int64 `json:"waiting"`
	// Uncertain may have been redriven before.
	Uncertain int64 `json:"uncertain"`
	// ToPublish could be published; Published were.
	ToPublish int64 `json:"to_publish"`
	Published int64 `json:"published"`
	// Listed are the first that could be published.
	Listed []DeadLetter `json:"listed"`
	// Refusals are the first of Refused.
	Refusals []Refusal `json:"refusals"`
	// Limits say what cannot be known.
	Limits []string `json:"limits"`

	publish bool
}

// Refusal is a letter that cannot be published.
type Refusal struct {
	DeadLetter
	Why    string `json:"why"`
	Remedy string `json:"remedy"`
}

// redrive publishes the original records of letters.
type redrive struct {
	*letters
	opts   RedriveOptions
	places map[int32][]chosen // by partition, in order
	topics []string           // by chosen.topic
	out    *writer
	report *Redriven
}

// Redrive publishes the original records of letters to their topics, in order per
// key, with a header that names the letter. A letter that was redriven before is left
// out. The report beside an error says what was done until then.
func Redrive(ctx context.Context, cfg *config.Config, opts RedriveOptions) (_ *Redriven, err error) {
	defer func() { err = interrupted(err) }()
	l, err := openLetters(ctx, cfg, opts.LetterOptions)
	if err != nil {
		return nil, err
	}
	defer l.close()
	r := &redrive{letters: l, opts: opts, places: make(map[int32][]chosen)}
	r.report = &Redriven{DeadLetterTopic: l.topic, Listed: []DeadLetter{}, Refusals: []Refusal{}, Limits: []string{}, publish: opts.Publish}
	if opts.Publish {
		held, unlock, err := lockOut(ctx, cfg, redriveVerb)
		if err != nil {
			return nil, err
		}
		defer unlock()
		r.out, err = openWriter(ctx, cfg, writerOptions{
			plain: true, suffix: redriveSuffix, policy: transform.BadEventSkip, metrics: uncounted{}, rate: opts.Rate, within: opts.Timeout, note: r.note, held: held,
		})
		if err != nil {
			return nil, err
		}
		defer r.out.close()
	}
	if err := r.choose(ctx); err != nil {
		return nil, err
	}
	if err := r.mark(ctx); err != nil {
		return nil, err
	}
	order := inOrder(r.places)
	r.places = nil
	leaveOut(order)
	r.count(order)
	if !opts.Publish {
		return r.report, r.list(ctx, order)
	}
	if err := r.write(ctx, order); err != nil {
		return r.report, err
	}
	return r.report, r.report.err()
}

// lockOut refuses a second command of the verb that publishes: both would publish the
// same. held is the error of a lock lost with its connection: a second command may be
// at work.
func lockOut(ctx context.Context, cfg *config.Config, verb string) (held func(context.Context) error, unlock func(), err error) {
	s, err := open(ctx, cfg)
	if err == nil {
		err = s.primary(ctx)
	}
	if err == nil {
		err = s.alone(ctx, verb)
	}
	if err != nil {
		if s != nil {
			s.close()
		}
		return nil, nil, err
	}
	held = func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, lockAnswer)
		defer cancel()
		if err := s.conn.Ping(ctx); err != nil {
			return &failure.Error{Class: failure.Transient, Remedy: "repeat the command, which finds what was published until now",
				Err: fmt.Errorf("PostgreSQL has the lock against a second %s no more: %w", verb, err)}
		}
		return nil
	}
	return held, s.close, nil
}

// lockAnswer is how long the session with the lock may take to answer.
const lockAnswer = 30 * time.Second

const (
	redriveVerb   = "dead-letters redrive"
	redriveSuffix = "/redrive" // of the transactional id
)

// choose reads the letters.
func (r *redrive) choose(ctx context.Context) error {
	asked := make(map[string]bool)
	for _, id := range r.opts.IDs {
		asked[id] = true
	}
	index := make(map[string]int32)
	_, err := r.each(ctx, func(rec *kgo.Record, letter *sink.Letter) error {
		delete(asked, string(letter.ID))
		topic, known := index[letter.Topic]
		if !known {
			topic = int32(len(r.topics))
			index[letter.Topic] = topic
			r.topics = append(r.topics, letter.Topic)
		}
		c := chosen{
			at: rec.Timestamp.UnixMilli(), offset: rec.Offset, partition: rec.Partition, topic: topic,
			key: orderOf(letter), identity: r.identity(letter.Topic, letter.Key, letter.ID),
		}
		if why, remedy := r.against(letter); why != "" {
			c.fate = fateRefused
			r.refuse(rec, letter, why, remedy)
		}
		r.places[rec.Partition] = append(r.places[rec.Partition], c)
		r.report.Letters++
		return nil
	})
	switch {
	case err != nil:
		return err
	case len(asked) > 0:
		return failure.Configf("write the id as `cdc-outbox dead-letters list` shows it", "no letter chosen has the id %q", slices.Min(slices.Collect(maps.Keys(asked))))
	case r.opts.At != nil && r.report.Letters == 0:
		return failure.Configf("take the numbers from `cdc-outbox dead-letters list`", "there is no letter %s as chosen", r.opts.At)
	}
	return nil
}

// refuse notes a letter that cannot be published.
func (r *redrive) refuse(rec *kgo.Record, letter *sink.Letter, why, remedy string) {
	r.report.Refused++
	if len(r.report.Refusals) < r.opts.Limit {
		r.report.Refusals = append(r.report.Refusals, Refusal{listed(rec, letter), why, remedy})
	}
}

// against is the reason against the publication of a letter; "": none.
func (r *redrive) against(letter *sink.Letter) (why, remedy string) {
	switch {
	case letter.Topic == "":
		return "it has no topic", fromTable(r.cfg, letter)
	case letter.Topic == r.topic:
		return "its topic is that of the dead letters", fromTable(r.cfg, letter)
	case r.cfg.Route.CheckTopic(letter.Topic) != nil:
		return r.cfg.Route.CheckTopic(letter.Topic).Error(), fromTable(r.cfg, letter)
	case letter.Cut != "":
		return "it is cut (" + shortened(letter.Cut) + ")", fromTable(r.cfg, letter)
	case !letter.Whole():
		return "the row could not become a record (" + shortened(letter.Reason) + ")", fromTable(r.cfg, letter)
	case r.cfg.Event.Partitioned():
		return "event.additional may have placed it in a partition, which the letter does not have", fromTable(r.cfg, letter)
	}
	return "", ""
}

// fromTable is the way to publish an event whose letter does not do.
func fromTable(cfg *config.Config, letter *sink.Letter) string {
	const again = "insert a corrected row"
	switch {
	case len(cfg.Source.Tables) == 0:
		return "write the event anew: messages are in the log only"
	case letter.ID == nil:
		return again
	}
	id := "'" + strings.ReplaceAll(shortened(string(letter.ID)), "'", `'\''`) + "'"
	return fmt.Sprintf("correct the cause; then, if the row is still in the table: cdc-outbox replay --name redrive --id %s --publish; else %s", id, again)
}

// count counts the fates.
func (r *redrive) count(order []chosen) {
	for i := range order {
		switch order[i].fate {
		case fateDone:
			r.report.Before++
		case fateWait:
			r.report.Waiting++
		case fateUncertain:
			r.report.Uncertain++
		case fatePublish:
			r.report.ToPublish++
		}
	}
}

var errListedLetters = errors.New("enough letters are listed")

// list lists the first letters that could be published.
func (r *redrive) list(ctx context.Context, order []chosen) error {
	err := r.groups(ctx, order, func(_ []*chosen, records []*kgo.Record) error {
		for _, rec := range records {
			if len(r.report.Listed) >= r.opts.Limit {
				return errListedLetters
			}
			letter, _ := sink.ReadLetter(rec)
			r.report.Listed = append(r.report.Listed, listed(rec, &letter))
		}
		return nil
	})
	if errors.Is(err, errListedLetters) {
		return nil
	}
	return err
}

// err tells of letters that were not published.
func (r *Redriven) err() error {
	if left := r.Refused + r.Waiting + r.Uncertain; left > 0 {
		return failure.Configf("see the remedy of each refused letter; a waiting one goes by its --id once the letter before it is dealt with, an uncertain one with --uncertain",
			"%d of %d letters were not published", left, r.Letters)
	}
	return nil
}
