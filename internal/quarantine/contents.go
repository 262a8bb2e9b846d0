package quarantine

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// Contents are the topic's.
type Contents struct {
	Entries  []*Entry   // parked, by number
	Commands []*Command // in the order of their times; those with an answer, too
	// Others counts the records of others.
	Others int
	// End is behind the last record.
	End int64
	// Exists is false where there is no topic.
	Exists bool

	last uint64 // number, also of settled events
}

// Units are the parked ones.
func (c *Contents) Units() map[Unit]bool {
	units := make(map[Unit]bool)
	for _, e := range c.Entries {
		units[e.Unit()] = true
	}
	return units
}

// Changed is the error of events parked under other rules: later events of the same keys may
// have another topic or key now, and would pass the parked ones. nil: there are none.
func (c *Contents) Changed(topic, rules string) error {
	var other *Entry
	count := 0
	for _, e := range c.Entries {
		if e.Rules != "" && e.Rules != rules {
			if count++; other == nil {
				other = e
			}
		}
	}
	if other == nil {
		return nil
	}
	return failure.Configf("set it as it was, settle the events (`cdc-outbox quarantine list`), and change it then",
		"%d events are parked in topic %q, and the settings that make topic and key have changed since: later events of their keys would pass them. The settings were %s, and are %s",
		count, topic, other.Rules, rules)
}

// Left is the error of events in a quarantine out of use by the change; nil: there are none.
func (c *Contents) Left(topic, change string) error {
	if len(c.Entries) == 0 {
		return nil
	}
	return failure.Configf(fmt.Sprintf("undo the change, settle the events (`cdc-outbox quarantine list`), and make it then; or, if they are not needed, delete topic %s", topic),
		"%d events are parked in topic %q, but %s: later events of their keys would pass them", len(c.Entries), topic, change)
}

// LeftBy is the error of events parked by a connector of the same tables under another name;
// nil: there are none.
func (c *Contents) LeftBy(f *checkpoint.Former) error {
	if len(c.Entries) == 0 {
		return nil
	}
	return failure.Configf(fmt.Sprintf("set %s again, start, settle the events (`cdc-outbox quarantine list`), and change the names then. If another connector has parked them, let that one run meanwhile; if they are not needed, delete topic %s", f.Names(), f.Quarantine),
		"%d events are parked in topic %q, by a connector of the same tables or messages with slot %q and the checkpoint key %q, which does not run: later events of their keys would pass them",
		len(c.Entries), f.Quarantine, f.Slot, f.Key)
}

// set returns what is parked, and the commands to be carried out.
func (c *Contents) set(topic string, limit int, rules string) (set *Set, pending []*Command) {
	set = NewSet(topic, limit)
	set.rules = rules
	set.last = c.last
	for _, e := range c.Entries {
		set.add(e)
	}
	for _, command := range c.Commands {
		if command.Answer == nil {
			command.Found = true
			pending = append(pending, command)
		}
	}
	return set, pending
}

// fold sums up the records of a topic: the last record of a key counts.
type fold struct {
	whole    func(number uint64) bool // keeps value and headers
	entries  map[uint64]*Entry
	commands map[string]*Command
	others   int
	last     uint64
}

func newFold(whole func(number uint64) bool) *fold {
	return &fold{whole: whole, entries: make(map[uint64]*Entry), commands: make(map[string]*Command)}
}

// add takes the next record.
func (f *fold) add(rec *kgo.Record) {
	number, event := numberOf(rec)
	if e, ok := ReadEntry(rec); ok {
		f.last = max(f.last, number)
		if !f.whole(number) {
			e.Value, e.Headers = nil, nil
		}
		f.entries[e.Number] = e
		return
	}
	if c, ok := ReadCommand(rec); ok {
		f.commands[c.ID] = c
		return
	}
	id, command := strings.CutPrefix(string(rec.Key), commandPrefix)
	switch {
	case rec.Value == nil && event:
		f.last = max(f.last, min(number, math.MaxInt64)) // it may be of others
		delete(f.entries, number)
	case rec.Value == nil && command:
		delete(f.commands, id)
	default:
		f.others++
	}
}

func (f *fold) contents() *Contents {
	return &Contents{
		Entries:  slices.SortedFunc(maps.Values(f.entries), func(a, b *Entry) int { return cmp.Compare(a.Number, b.Number) }),
		Commands: slices.SortedFunc(maps.Values(f.commands), func(a, b *Command) int { return a.At.Compare(b.At) }),
		Others:   f.others,
		last:     f.last,
	}
}
