package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/quarantine"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

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

// mostKeys bounds the keys of a command.
const mostKeys = 10000

// choose fills in the command's numbers. A number beyond the command's means is refused; events
// chosen otherwise are left out.
func (p *parked) choose(c *quarantine.Command) error {
	for _, number := range p.opts.Numbers {
		e := p.find(number)
		if e == nil {
			return p.unknown(number)
		}
		if first := p.units[e.Unit()][0]; first != e {
			return failure.Configf(fmt.Sprintf("settle %d first", first.Number), "event %d waits behind event %d of its key", number, first.Number)
		}
		if c.Verb == quarantine.Retry && !e.Whole {
			return failure.Configf("give what is wrong or missing with `cdc-outbox quarantine edit`, or leave the event out with skip",
				"event %d has no record to publish again: its row could not become a record (%s)", number, e.Reason)
		}
		if !slices.Contains(c.Numbers, number) {
			c.Numbers = append(c.Numbers, number)
		}
	}
	unable, more := 0, 0
	for _, e := range p.first {
		switch {
		case !p.opts.All && !slices.Contains(p.opts.Reasons, string(e.Reason)):
		case c.Verb == quarantine.Retry && !e.Whole:
			unable++
		case len(c.Numbers) == mostKeys:
			more++
		default:
			c.Numbers = append(c.Numbers, e.Number)
		}
	}
	if unable > 0 {
		p.note(fmt.Sprintf("left out %d keys, whose first events have no record to publish again: their rows need `cdc-outbox quarantine edit`, or skip", unable))
	}
	if more > 0 {
		p.note(fmt.Sprintf("a command has at most %d keys: repeat it for the other %d", mostKeys, more))
	}
	if c.Verb == quarantine.Release {
		for _, number := range c.Numbers {
			unit := p.find(number).Unit()
			of := p.units[unit]
			c.Keys = append(c.Keys, quarantine.ReleasedKey{Unit: unit[:], Last: of[len(of)-1].Number})
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
