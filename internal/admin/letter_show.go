package admin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// WholeLetter is a dead letter with all of its parts.
type WholeLetter struct {
	LetterPlace
	DeadLetterTopic string    `json:"dead_letter_topic"`
	Time            time.Time `json:"time"`
	Reason          string    `json:"reason"`
	Error           string    `json:"error"`
	Table           string    `json:"table"`
	ID              Content   `json:"id"`
	LSN             string    `json:"lsn,omitempty"`
	Seq             string    `json:"seq,omitempty"`
	Topic           string    `json:"topic"`
	// EventTime is the time asked for, or the commit's.
	EventTime time.Time `json:"event_time,omitzero"`
	// Cut has the former lengths of the parts cut short: "value=5242880".
	Cut     string         `json:"cut,omitempty"`
	Key     Content        `json:"key"`
	Headers []LetterHeader `json:"headers"`
	Value   Content        `json:"value"`
}

// LetterHeader is a header of the original record.
type LetterHeader struct {
	Name  string  `json:"name"`
	Value Content `json:"value"`
}

// Content are bytes, shown as text where they are. nil is null.
type Content []byte

// MarshalJSON writes null, {"text": …} or {"base64": …}.
func (c Content) MarshalJSON() ([]byte, error) {
	switch {
	case c == nil:
		return []byte("null"), nil
	case utf8.Valid(c):
		return json.Marshal(map[string]string{"text": string(c)})
	}
	return json.Marshal(map[string][]byte{"base64": c})
}

// ShowDeadLetter returns the letter at a place.
func ShowDeadLetter(ctx context.Context, cfg *config.Config, opts LetterOptions) (*WholeLetter, error) {
	l, err := openLetters(ctx, cfg, opts)
	if err != nil {
		return nil, err
	}
	defer l.close()
	var shown *WholeLetter
	others, err := l.each(ctx, func(rec *kgo.Record, letter *sink.Letter) error {
		shown = whole(l.topic, rec, letter)
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case others > 0:
		return nil, failure.Configf("take the numbers from `cdc-outbox dead-letters list`", "the record %s of topic %q is no dead letter", opts.At, l.topic)
	case shown == nil:
		return nil, failure.Configf("take the numbers from `cdc-outbox dead-letters list`", "topic %q has no record at %s, but a marker, or one that was deleted", l.topic, opts.At)
	}
	return shown, nil
}

func whole(topic string, rec *kgo.Record, letter *sink.Letter) *WholeLetter {
	shown := &WholeLetter{
		LetterPlace: LetterPlace{rec.Partition, rec.Offset}, DeadLetterTopic: topic, Time: rec.Timestamp.UTC(),
		Reason: letter.Reason, Error: letter.Error, Table: letter.Table, ID: letter.ID, LSN: letter.LSN, Seq: letter.Seq,
		Topic: letter.Topic, EventTime: letter.Time, Cut: letter.Cut, Key: letter.Key, Value: letter.Value, Headers: []LetterHeader{},
	}
	for _, h := range letter.Headers {
		shown.Headers = append(shown.Headers, LetterHeader{h.Key, h.Value})
	}
	return shown
}

// WriteText prints the letter for people.
func (l *WholeLetter) WriteText(w io.Writer) error {
	position, cut := "", ""
	if l.LSN != "" {
		position = l.LSN + "/" + l.Seq
	}
	if l.Cut != "" {
		cut = plain(l.Cut) + ": the lengths before; the whole event is in the table"
	}
	return (&unpublished{
		reason: l.Reason, err: l.Error, table: l.Table, position: position, time: l.EventTime,
		topic: l.Topic, id: l.ID, key: l.Key, headers: l.Headers, value: l.Value,
	}).write(w, "letter", fmt.Sprintf("%s of topic %s, written %s", l.LetterPlace, l.DeadLetterTopic, l.Time.Format(time.RFC3339Nano)), "cut", cut)
}

// unpublished is an unpublished event, as shown of a dead letter or a parked event.
type unpublished struct {
	reason, err, table, position string // position is empty where unknown
	time                         time.Time
	topic                        string
	id, key                      Content
	headers                      []LetterHeader
	value                        Content
}

// write prints the event for people: first its name and place, then its parts. The last has a
// name of its own, and may be empty.
func (u *unpublished) write(w io.Writer, name, place, lastName, last string) error {
	var b strings.Builder
	line := func(name, text string) { fmt.Fprintf(&b, "%-9s %s\n", name, text) }
	line(name, place)
	line("reason", plain(u.reason))
	line("error", plain(u.err))
	line("table", plain(u.table))
	if u.position != "" {
		line("position", plain(u.position))
	}
	line("time", u.time.Format(time.RFC3339Nano))
	line("topic", plain(u.topic))
	line("id", showText(u.id))
	line("key", showText(u.key))
	for _, h := range u.headers {
		line("header", plain(h.Name)+"="+showText(h.Value))
	}
	if last != "" {
		line(lastName, last)
	}
	showValue(&b, u.value)
	_, err := io.WriteString(w, b.String())
	return err
}

// showValue prints a record's value.
func showValue(b *strings.Builder, value []byte) {
	switch {
	case value == nil:
		fmt.Fprintf(b, "%-9s null\n", "value")
	case readable(value):
		fmt.Fprintf(b, "value, %d bytes:\n%s\n", len(value), value)
	default:
		fmt.Fprintf(b, "value, %d bytes, in base64:\n%s\n", len(value), base64.StdEncoding.EncodeToString(value))
	}
}

// readable tells whether a terminal shows the text as it is.
func readable(text []byte) bool {
	return utf8.Valid(text) && !strings.ContainsFunc(string(text), func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\t'
	})
}
