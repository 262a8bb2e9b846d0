package admin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// LetterPlace is the place of a dead letter in its topic.
type LetterPlace struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
}

// String is the value of the header cdc-redrive.
func (p LetterPlace) String() string { return fmt.Sprintf("%d/%d", p.Partition, p.Offset) }

// LetterOptions choose dead letters.
type LetterOptions struct {
	// Since leaves out letters with an earlier time; zero: no bound.
	Since time.Time
	// Reasons, Topics, Tables and IDs are those of the only letters chosen; empty: all.
	Reasons, Topics, Tables, IDs []string
	// At is the place of the only letter chosen; nil: all.
	At *LetterPlace
	// Limit is how many letters are listed at most.
	Limit int
	// Timeout bounds the wait for brokers that do not answer.
	Timeout time.Duration
	// Notes takes messages about the progress.
	Notes io.Writer
}

// DeadLetter is a dead letter in a list. Long texts are cut.
type DeadLetter struct {
	LetterPlace
	Time   time.Time `json:"time"`
	ID     string    `json:"id"`
	Topic  string    `json:"topic"` // the original one
	Table  string    `json:"table"`
	Key    string    `json:"key"`
	Reason string    `json:"reason"`
	Error  string    `json:"error"`
	Cut    bool      `json:"cut"`
}

// DeadLetters are the letters chosen.
type DeadLetters struct {
	Topic   string           `json:"dead_letter_topic"`
	Letters int64            `json:"letters"`
	Reasons map[string]int64 `json:"reasons"`
	// Others counts the records that are no letters.
	Others int64 `json:"others"`
	// Newest are the last letters, the newest last.
	Newest []DeadLetter `json:"newest"`
}

// ListDeadLetters lists letters by their time.
func ListDeadLetters(ctx context.Context, cfg *config.Config, opts LetterOptions) (*DeadLetters, error) {
	l, err := openLetters(ctx, cfg, opts)
	if err != nil {
		return nil, err
	}
	defer l.close()
	list := &DeadLetters{Topic: l.topic, Reasons: make(map[string]int64), Newest: []DeadLetter{}}
	list.Others, err = l.each(ctx, func(rec *kgo.Record, letter *sink.Letter) error {
		list.Letters++
		list.Reasons[letter.Reason]++
		list.Newest = append(list.Newest, listed(rec, letter))
		if len(list.Newest) > 2*opts.Limit {
			list.Newest = newest(list.Newest, opts.Limit)
		}
		return nil
	})
	list.Newest = newest(list.Newest, opts.Limit)
	return list, err
}

// newest are the last n letters, in the order of their time.
func newest(letters []DeadLetter, n int) []DeadLetter {
	slices.SortFunc(letters, func(a, b DeadLetter) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return slices.Delete(letters, 0, max(0, len(letters)-n))
}

// listed is a letter's line in a list. It keeps none of the record's bytes.
func listed(rec *kgo.Record, letter *sink.Letter) DeadLetter {
	return DeadLetter{
		LetterPlace: LetterPlace{rec.Partition, rec.Offset}, Time: rec.Timestamp.UTC(),
		ID: shortened(string(letter.ID)), Topic: shortened(letter.Topic), Table: shortened(letter.Table), Key: shortened(string(letter.Key)),
		Reason: shortened(letter.Reason), Error: shortened(letter.Error), Cut: letter.Cut != "",
	}
}

// mostText is the length of a text in a list.
const mostText = 300

func shortened(text string) string {
	if len(text) <= mostText {
		return text
	}
	return strings.ToValidUTF8(text[:mostText], "") + "…"
}

// letters reads the topic of dead letters.
type letters struct {
	cfg     *config.Config
	opts    LetterOptions
	cluster *cluster
	topic   string
	logs    []*kafkalog.Partition
	*notes
}

// openLetters connects, and finds the partitions.
func openLetters(ctx context.Context, cfg *config.Config, opts LetterOptions) (*letters, error) {
	if cfg.Sink.Kafka == nil {
		return nil, failure.Configf("set sink.kafka", "dead letters are in Kafka, and the sink is stdout")
	}
	l := &letters{cfg: cfg, opts: opts, cluster: newCluster(cfg), topic: cfg.Errors.DeadLetterTopic, notes: &notes{to: opts.Notes}}
	if l.topic == "" {
		return nil, failure.Configf("set errors.dead_letter_topic", "no dead-letter topic is set")
	}
	if err := l.cluster.connect(ctx); err != nil {
		return nil, err
	}
	var err error
	l.logs, err = audit.Open(ctx, l.cluster.client, l.topic, l.reading())
	if err == nil && len(l.logs) == 0 {
		err = failure.Configf("correct errors.dead_letter_topic if there should be letters; nothing is to be done if no event was ever bad",
			"the dead-letter topic %q does not exist; errors.on_bad_event is %s", l.topic, cfg.Errors.OnBadEvent)
	}
	if err == nil && opts.At != nil {
		err = l.within(*opts.At)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *letters) close() { l.cluster.client.Close() }

// within refuses a place that has no record.
func (l *letters) within(at LetterPlace) error {
	for _, log := range l.logs {
		if log.Number() != at.Partition {
			continue
		}
		if start, end := log.Bounds(); at.Offset < start || at.Offset >= end {
			return failure.Configf("take the numbers from `cdc-outbox dead-letters list`",
				"partition %d of topic %q begins at offset %d and ends before %d: there is no letter %s", at.Partition, l.topic, start, end, at)
		}
		return nil
	}
	return failure.Configf("take the numbers from `cdc-outbox dead-letters list`", "topic %q has %d partitions, and none with the number %d", l.topic, len(l.logs), at.Partition)
}

// reading says how the topic is read.
func (l *letters) reading() audit.ReadOptions {
	return audit.ReadOptions{
		Patience: l.opts.Timeout, Note: l.note, Stuck: l.cluster.stuck,
		Allow: func(topic string) string { return l.cluster.cfg.Tools().Allow("Read", topic) },
	}
}

// each calls use with the chosen letters, partition by partition, in order, and
// counts the records that are no letters.
func (l *letters) each(ctx context.Context, use func(*kgo.Record, *sink.Letter) error) (others int64, err error) {
	var starts map[int32]int64
	if !l.opts.Since.IsZero() {
		if starts, err = audit.Since(ctx, l.logs, l.topic, l.opts.Since, l.reading()); err != nil {
			return 0, err
		}
	}
	for _, log := range l.logs {
		start, end := log.Bounds()
		if at := l.opts.At; at != nil {
			if at.Partition != log.Number() {
				continue
			}
			start, end = at.Offset, at.Offset+1
		}
		reader := audit.NewReader(l.cluster.client, log, l.topic, l.reading())
		_, err := reader.Walk(ctx, max(start, starts[log.Number()]), end, func(records []*kgo.Record, _ int64) error {
			for _, rec := range records {
				letter, ok := sink.ReadLetter(rec)
				if !ok {
					others++
				} else if l.chooses(rec, &letter) {
					if err := use(rec, &letter); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return others, err
		}
	}
	return others, nil
}

// chooses tells whether the letter is among those asked for.
func (l *letters) chooses(rec *kgo.Record, letter *sink.Letter) bool {
	has := func(texts []string, text string) bool { return len(texts) == 0 || slices.Contains(texts, text) }
	return !rec.Timestamp.Before(l.opts.Since) && has(l.opts.Reasons, letter.Reason) && has(l.opts.Topics, letter.Topic) && has(l.opts.Tables, letter.Table) &&
		(len(l.opts.IDs) == 0 || letter.ID != nil && slices.Contains(l.opts.IDs, string(letter.ID)))
}
