package quarantine

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Verb is what an operator wants done.
type Verb string

// The verbs.
const (
	// Retry publishes the event as it is, then the events behind it.
	Retry Verb = "retry"
	// Edit is Retry with other contents.
	Edit Verb = "edit"
	// Skip leaves the event out, and publishes the events behind it.
	Skip Verb = "skip"
	// Release is Skip for all bad events of the key.
	Release Verb = "release"
)

// Command is an operator's word about the first events of parked keys.
type Command struct {
	ID   string    `json:"id"`
	Verb Verb      `json:"verb"`
	At   time.Time `json:"at"`
	// Numbers are those of the events.
	Numbers []uint64 `json:"numbers"`
	// Keys are Release's: an instance goes on with a key after its first event was dropped.
	Keys   []ReleasedKey `json:"keys,omitempty"`
	Edit   *Edits        `json:"edit,omitempty"`
	Answer *Answer       `json:"answer,omitempty"` // nil: not carried out yet

	// Value is the new value, if Edit says so.
	Value []byte `json:"-"`
	// Found is set where an instance finds the command at its start: an earlier instance may
	// have carried out the command, in part or as a whole.
	Found bool `json:"-"`
}

// ReleasedKey is a key in a Release.
type ReleasedKey struct {
	Unit []byte `json:"unit"`
	// Last is the key's last event at the time of the command. A bad event behind has not been
	// seen by the operator, and waits for another command.
	Last uint64 `json:"last"`
}

// key is the key of the event at the index.
func (c *Command) key(i int) ReleasedKey {
	if i < len(c.Keys) {
		return c.Keys[i]
	}
	return ReleasedKey{Last: c.Numbers[i]}
}

// Edits are the new contents of an event.
type Edits struct {
	Topic   string            `json:"topic,omitempty"` // "": as it is
	Key     []byte            `json:"key,omitempty"`   // empty: as it is
	Value   bool              `json:"value,omitempty"` // the command has a new one
	Null    bool              `json:"null,omitempty"`  // and it is null
	Headers map[string]string `json:"headers,omitempty"`
}

// Answer says what a command did.
type Answer struct {
	At        time.Time `json:"at"`
	Published int64     `json:"published"`
	Dropped   int64     `json:"dropped"`
	// Before counts events settled before the instance found the command.
	Before int64 `json:"settled_before,omitempty"`
	// Refusals are events for which nothing, or not all, was done.
	Refusals []Refusal `json:"refusals,omitempty"`
}

// Refusal is why a key stays parked.
type Refusal struct {
	Number uint64 `json:"number"`
	Why    string `json:"why"`
	Remedy string `json:"remedy,omitempty"`
}

// mostRefusals bounds the refusals of an answer.
const mostRefusals = 100

// Refuse adds a refusal.
func (a *Answer) Refuse(number uint64, why, remedy string) {
	if len(a.Refusals) < mostRefusals {
		a.Refusals = append(a.Refusals, Refusal{number, why, remedy})
	}
}

// Record is the event that keeps the command, or its answer, in the topic.
func (c *Command) Record(topic string) (*transform.Event, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("write command %s: %w", c.ID, err)
	}
	value := c.Value
	if value == nil || c.Answer != nil {
		value = []byte{}
	}
	ev := own(topic, commandPrefix+c.ID, value)
	ev.Record.Headers = []kgo.RecordHeader{{Key: header, Value: text}}
	return ev, nil
}

// Forgotten is the event that removes the command from the topic.
func (c *Command) Forgotten(topic string) *transform.Event {
	return own(topic, commandPrefix+c.ID, nil)
}

// ReadCommand reads a record of the topic; ok is false for other records.
func ReadCommand(rec *kgo.Record) (c *Command, ok bool) {
	id, ok := strings.CutPrefix(string(rec.Key), commandPrefix)
	c = new(Command)
	if !ok || !meta(rec, c) || c.ID != id {
		return nil, false
	}
	c.Value = rec.Value
	return c, true
}

// apply gives the event the new contents.
func (c *Command) apply(ev *transform.Event) {
	edit := c.Edit
	if c.Verb != Edit || edit == nil {
		return
	}
	if edit.Topic != "" {
		ev.Record.Topic, ev.Record.Partition = edit.Topic, transform.PartitionByKey
	}
	if len(edit.Key) > 0 {
		ev.Record.Key = edit.Key
	}
	if edit.Value {
		ev.Record.Value = c.Value
		if edit.Null {
			ev.Record.Value = nil
		}
		ev.Record.Headers = transform.WithoutReference(ev.Record.Headers)
	}
	headers := make([]kgo.RecordHeader, 0, len(ev.Record.Headers)+len(edit.Headers))
	for _, h := range ev.Record.Headers {
		if _, replaced := edit.Headers[h.Key]; !replaced {
			headers = append(headers, h)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(edit.Headers)) {
		headers = append(headers, kgo.RecordHeader{Key: name, Value: []byte(edit.Headers[name])})
	}
	ev.Record.Headers = headers
}
