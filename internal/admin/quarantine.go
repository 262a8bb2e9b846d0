package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/quarantine"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// QuarantineOptions choose parked events.
type QuarantineOptions struct {
	// Numbers are those of the events; All and Reasons choose the first events of keys.
	Numbers []uint64
	All     bool
	Reasons []string
	// Limit is how many keys are listed at most.
	Limit int
	// Timeout bounds the wait for brokers, and for the active instance.
	Timeout time.Duration
	// Notes takes messages about the progress.
	Notes io.Writer
}

// ParkedKey is a key that does not flow.
type ParkedKey struct {
	Number uint64    `json:"number"` // of the first event
	Topic  string    `json:"topic"`
	Key    *string   `json:"key"` // nil: none
	Events int       `json:"events"`
	Since  time.Time `json:"since"`
	ID     string    `json:"id"`
	Reason string    `json:"reason"`
	Error  string    `json:"error"`
	// Retry tells that the event has a record that Kafka did not take.
	Retry bool `json:"retry"`
}

// QuarantineList is what is parked.
type QuarantineList struct {
	Topic  string      `json:"quarantine_topic"`
	Events int         `json:"events"`
	Limit  int         `json:"limit"`
	Keys   int         `json:"keys"`
	Listed []ParkedKey `json:"listed"`
	// Waiting are commands that no instance has carried out yet.
	Waiting []*quarantine.Command `json:"waiting_commands"`
	// Others counts the records of others.
	Others int `json:"others"`
}

// parked is the topic of the quarantine, read.
type parked struct {
	cfg  *config.Config
	opts QuarantineOptions
	log  *quarantine.Log
	*quarantine.Contents
	units map[quarantine.Unit][]*quarantine.Entry
	first []*quarantine.Entry // of each key, by number
}

// openParked reads the topic, with the values of the events chosen by whole.
func openParked(ctx context.Context, cfg *config.Config, opts QuarantineOptions, whole func(uint64) bool) (*parked, error) {
	if cfg.Sink.Kafka == nil {
		return nil, failure.Configf("set sink.kafka", "the quarantine is in Kafka, and the sink is stdout")
	}
	c := newCluster(cfg)
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	c.client.Close()
	log, err := wiring.OpenQuarantine(cfg)
	if err != nil {
		return nil, err
	}
	p := &parked{cfg: cfg, opts: opts, log: log, units: make(map[quarantine.Unit][]*quarantine.Entry)}
	if p.Contents, err = p.read(ctx, whole); err != nil {
		log.Close()
		return nil, err
	}
	for _, e := range p.Entries {
		if len(p.units[e.Unit()]) == 0 {
			p.first = append(p.first, e)
		}
		p.units[e.Unit()] = append(p.units[e.Unit()], e)
	}
	return p, nil
}

func (p *parked) close() { p.log.Close() }

func (p *parked) read(ctx context.Context, whole func(uint64) bool) (*quarantine.Contents, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.opts.Timeout, fmt.Errorf("no answer within %s", p.opts.Timeout))
	defer cancel()
	c, err := p.log.Read(ctx, whole)
	switch {
	case err != nil:
		return nil, sink.Unreachable(*p.cfg.Sink.Kafka, err)
	case !c.Exists && p.cfg.Errors.OnBadEvent != transform.BadEventQuarantine:
		return nil, failure.Configf("set errors.on_bad_event to quarantine, if bad events are to be parked", "the quarantine topic %q does not exist; errors.on_bad_event is %s", p.log.Topic(), p.cfg.Errors.OnBadEvent)
	}
	return c, nil
}

// key is an entry's line in a list.
func (p *parked) key(e *quarantine.Entry) ParkedKey {
	k := ParkedKey{
		Number: e.Number, Topic: shortened(e.Topic), Events: len(p.units[e.Unit()]), Since: e.Parked, ID: shortened(string(e.ID)),
		Reason: cmp.Or(string(e.Reason), "behind"), Error: shortened(e.Error), Retry: e.Whole,
	}
	if e.Key != nil {
		key := shortened(string(e.Key))
		k.Key = &key
	}
	return k
}

// ListQuarantine lists the keys that are parked, the oldest first.
func ListQuarantine(ctx context.Context, cfg *config.Config, opts QuarantineOptions) (*QuarantineList, error) {
	p, err := openParked(ctx, cfg, opts, quarantine.None)
	if err != nil {
		return nil, err
	}
	defer p.close()
	list := &QuarantineList{
		Topic: p.log.Topic(), Events: len(p.Entries), Limit: cfg.Errors.QuarantineLimit, Keys: len(p.first),
		Listed: []ParkedKey{}, Waiting: []*quarantine.Command{}, Others: p.Others,
	}
	for _, e := range p.first[:min(len(p.first), opts.Limit)] {
		list.Listed = append(list.Listed, p.key(e))
	}
	for _, c := range p.Commands {
		if c.Answer == nil {
			list.Waiting = append(list.Waiting, c)
		}
	}
	return list, nil
}

// ParkedEvent is a parked event with all of its parts.
type ParkedEvent struct {
	ParkedKey
	Table     string         `json:"table"`
	EventID   Content        `json:"event_id"`
	LSN       string         `json:"lsn"`
	Seq       uint32         `json:"seq"`
	EventTime time.Time      `json:"event_time,omitzero"`
	FullKey   Content        `json:"full_key"`
	Headers   []LetterHeader `json:"headers"`
	Value     Content        `json:"value"`
	// Behind are the numbers of the events of the key behind this one, as far as listed.
	Behind []uint64 `json:"behind"`
}

// ShowParked returns a parked event.
func ShowParked(ctx context.Context, cfg *config.Config, opts QuarantineOptions) (*ParkedEvent, error) {
	p, err := openParked(ctx, cfg, opts, func(number uint64) bool { return number == opts.Numbers[0] })
	if err != nil {
		return nil, err
	}
	defer p.close()
	e := p.find(opts.Numbers[0])
	if e == nil {
		return nil, p.unknown(opts.Numbers[0])
	}
	shown := &ParkedEvent{
		ParkedKey: p.key(e), Table: e.Table, EventID: e.ID, LSN: e.LSN.String(), Seq: e.Seq, EventTime: e.Event().Time(),
		FullKey: e.Key, Value: e.Value, Headers: []LetterHeader{}, Behind: []uint64{},
	}
	for _, h := range e.Headers {
		shown.Headers = append(shown.Headers, LetterHeader{h.Key, h.Value})
	}
	for _, other := range p.units[e.Unit()] {
		if other.Number > e.Number && len(shown.Behind) < opts.Limit {
			shown.Behind = append(shown.Behind, other.Number)
		}
	}
	return shown, nil
}

func (p *parked) find(number uint64) *quarantine.Entry {
	i, ok := slices.BinarySearchFunc(p.Entries, number, func(e *quarantine.Entry, n uint64) int { return cmp.Compare(e.Number, n) })
	if !ok {
		return nil
	}
	return p.Entries[i]
}

func (p *parked) unknown(number uint64) error {
	return failure.Configf("take the numbers from `cdc-outbox quarantine list`", "no event %d is parked in topic %q", number, p.log.Topic())
}

// QuarantineCommand is what became of a command.
type QuarantineCommand struct {
	Topic   string             `json:"quarantine_topic"`
	Verb    quarantine.Verb    `json:"verb"`
	Chosen  []ParkedKey        `json:"chosen"`
	Keys    int                `json:"keys"`
	Command string             `json:"command,omitempty"` // its id
	Answer  *quarantine.Answer `json:"answer"`            // nil: not carried out
}

// CommandQuarantine has the active instance carry out a command, if yes; otherwise it says
// about what the command would be.
func CommandQuarantine(ctx context.Context, cfg *config.Config, opts QuarantineOptions, c quarantine.Command, yes bool) (*QuarantineCommand, error) {
	p, err := openParked(ctx, cfg, opts, quarantine.None)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := p.choose(&c); err != nil {
		return nil, err
	}
	if err := p.editable(ctx, &c); err != nil {
		return nil, err
	}
	r := &QuarantineCommand{Topic: p.log.Topic(), Verb: c.Verb, Keys: len(c.Numbers), Chosen: []ParkedKey{}}
	for _, number := range c.Numbers[:min(len(c.Numbers), opts.Limit)] {
		r.Chosen = append(r.Chosen, p.key(p.find(number)))
	}
	if !yes || len(c.Numbers) == 0 {
		return r, nil
	}
	c.ID, c.At = rand.Text(), time.Now().UTC()
	r.Command = c.ID
	r.Answer, err = p.command(ctx, &c)
	if err != nil {
		return r, err
	}
	if len(r.Answer.Refusals) > 0 {
		return r, failure.Configf("see the answers above; `cdc-outbox quarantine list` has what is parked", "%d of %d events were not settled, or not with all behind them", len(r.Answer.Refusals), len(c.Numbers))
	}
	return r, nil
}

// choose fills in the command's numbers.
func (p *parked) choose(c *quarantine.Command) error {
	for _, number := range p.opts.Numbers {
		e := p.find(number)
		if e == nil {
			return p.unknown(number)
		}
		if first := p.units[e.Unit()][0]; first != e {
			return failure.Configf(fmt.Sprintf("settle %d first", first.Number), "event %d waits behind event %d of its key", number, first.Number)
		}
		if !slices.Contains(c.Numbers, number) {
			c.Numbers = append(c.Numbers, number)
		}
	}
	for _, e := range p.first {
		if p.opts.All || slices.Contains(p.opts.Reasons, string(e.Reason)) {
			c.Numbers = append(c.Numbers, e.Number)
		}
	}
	return nil
}

// editable refuses contents that could never be published.
func (p *parked) editable(ctx context.Context, c *quarantine.Command) error {
	if c.Verb != quarantine.Edit || len(c.Numbers) == 0 {
		return nil
	}
	e := p.find(c.Numbers[0])
	topic := cmp.Or(c.Edit.Topic, e.Topic)
	if topic == "" {
		return failure.Configf("add --topic", "event %d has no topic", e.Number)
	}
	if err := p.cfg.Route.CheckTopic(topic); err != nil {
		return failure.Configf("name the topic with --topic", "%w", err)
	}
	if len(e.Key) == 0 && len(c.Edit.Key) == 0 && p.cfg.Event.NullKey != transform.NullKeyPublish {
		return failure.Configf("add --key", "event %d has no key", e.Number)
	}
	cluster := newCluster(p.cfg)
	if err := cluster.connect(ctx); err != nil {
		return err
	}
	defer cluster.client.Close()
	if _, err := cluster.lookup(ctx, topic); err != nil && !p.cfg.Sink.Kafka.CreateTopics {
		return failure.Configf(sink.CreateCommand(*p.cfg.Sink.Kafka, topic), "topic %q: %w", topic, err)
	}
	return nil
}

// answerEvery is how often the answer is looked for.
const answerEvery = 200 * time.Millisecond

// command writes the command, and waits for the answer.
func (p *parked) command(ctx context.Context, c *quarantine.Command) (*quarantine.Answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.opts.Timeout, errUnanswered)
	defer cancel()
	out, err := sink.NewKafka(*p.cfg.Sink.Kafka, sink.WithQuarantine(p.log.Topic(), func(*transform.Event) bool { return false }),
		sink.WithObserver(waits{sink.Unobserved, p.cfg, p.note}))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	write := func(ctx context.Context, ev *transform.Event) error {
		return out.Deliver(ctx, []*transform.Event{ev}, func(_ context.Context, _ *transform.Event, bad *transform.BadEvent) error {
			return failure.Configf(p.cfg.Sink.Kafka.Tools().Allow(quarantine.Operations, p.log.Topic()), "topic %q does not take the command: %w", p.log.Topic(), bad)
		})
	}
	ev, err := c.Record(p.log.Topic())
	if err == nil {
		err = write(ctx, ev)
	}
	if err != nil {
		return nil, fmt.Errorf("write the command: %w", err)
	}
	p.note("waiting for the active instance to carry it out")
	var answer *quarantine.Answer
	following, stop := context.WithCancel(ctx)
	defer stop()
	p.log.Follow(following, p.End, answerEvery, func(other *quarantine.Command) {
		if other.ID == c.ID && other.Answer != nil {
			answer = other.Answer
			stop()
		}
	}, func(err error) {
		if err != nil {
			p.note("the topic cannot be read now: " + err.Error())
		}
	})
	if answer == nil {
		return nil, &failure.Error{Class: failure.Transient, Remedy: "see whether `cdc-outbox run` is up and ready (`cdc-outbox status`); `cdc-outbox quarantine list` shows the command until it is carried out",
			Err: fmt.Errorf("no active instance has carried out the command within %s: it stays in topic %q, and the next active instance carries it out: %w", p.opts.Timeout, p.log.Topic(), context.Cause(ctx))}
	}
	if err := write(ctx, c.Forgotten(p.log.Topic())); err != nil {
		p.note("the answer stays in the topic, which does no harm: " + err.Error())
	}
	return answer, nil
}

var errUnanswered = errors.New("no answer")

func (p *parked) note(line string) { fmt.Fprintln(p.opts.Notes, line) }

// WriteText prints the list for people.
func (l *QuarantineList) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "topic %s: %d keys parked, with %d events of at most %d\n", l.Topic, l.Keys, l.Events, l.Limit)
	for i := range l.Listed {
		b.WriteString(l.Listed[i].line())
	}
	if more := l.Keys - len(l.Listed); more > 0 {
		fmt.Fprintf(&b, "    and %d keys more\n", more)
	}
	for _, c := range l.Waiting {
		fmt.Fprintf(&b, "waiting for an active instance: %s of %d events, commanded %s\n", c.Verb, len(c.Numbers), c.At.Format(time.RFC3339))
	}
	if l.Others > 0 {
		fmt.Fprintf(&b, "%d other records are none of cdc-outbox\n", l.Others)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// line is the key's in a list.
func (k *ParkedKey) line() string {
	key, topic := "no key", "(no topic)"
	if k.Key != nil {
		key = fmt.Sprintf("key %q", *k.Key)
	}
	if k.Topic != "" {
		topic = plain(k.Topic)
	}
	return fmt.Sprintf("    %d  %s  %s  %d events since %s\n        %s  %s: %s\n", k.Number, topic, key, k.Events, k.Since.Format(time.RFC3339), plain(k.ID), plain(k.Reason), plain(k.Error))
}

// WriteText prints the event for people.
func (e *ParkedEvent) WriteText(w io.Writer) error {
	var b strings.Builder
	line := func(name, text string) { fmt.Fprintf(&b, "%-9s %s\n", name, text) }
	line("event", fmt.Sprintf("%d, parked %s", e.Number, e.Since.Format(time.RFC3339Nano)))
	line("reason", plain(e.Reason))
	line("error", plain(e.Error))
	line("table", plain(e.Table))
	line("position", fmt.Sprintf("%s/%d", e.LSN, e.Seq))
	line("time", e.EventTime.Format(time.RFC3339Nano))
	line("topic", plain(e.Topic))
	line("id", showText(e.EventID))
	line("key", showText(e.FullKey))
	for _, h := range e.Headers {
		line("header", plain(h.Name)+"="+showText(h.Value))
	}
	line("behind", fmt.Sprint(e.Behind))
	showValue(&b, e.Value)
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteText prints the command for people.
func (r *QuarantineCommand) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "topic %s: %s of %d keys\n", r.Topic, r.Verb, r.Keys)
	for i := range r.Chosen {
		b.WriteString(r.Chosen[i].line())
	}
	if more := r.Keys - len(r.Chosen); more > 0 {
		fmt.Fprintf(&b, "    and %d keys more\n", more)
	}
	switch {
	case r.Answer != nil:
		fmt.Fprintf(&b, "published %d events, left out %d\n", r.Answer.Published, r.Answer.Dropped)
		for _, refusal := range r.Answer.Refusals {
			fmt.Fprintf(&b, "event %d: %s\n        %s\n", refusal.Number, plain(refusal.Why), plain(refusal.Remedy))
		}
	case r.Command == "" && r.Keys > 0:
		b.WriteString("nothing was done: repeat the command with --yes\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
