package quarantine

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
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

// set returns what is parked, and the commands to be carried out.
func (c *Contents) set(topic string, limit int) (set *Set, pending []*Command) {
	set = NewSet(topic, limit)
	set.last = c.last
	for _, e := range c.Entries {
		set.add(e)
	}
	for _, command := range c.Commands {
		if command.Answer == nil {
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
