package admin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
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

	changed error // the reason of run against the parked events; nil: there is none
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
		changed: p.Changed(p.log.Topic(), wiring.Rules(cfg)),
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
