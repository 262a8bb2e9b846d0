package outbox

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

// maxCharacters is the length of the columns in Schema.
const maxCharacters = 255

// maxHeaderBytes bounds the names and values of an event's headers. The
// connector takes twice as much, with the headers it adds.
const maxHeaderBytes = 128 << 10

// reserved are the headers the connector sets, beside those beginning with
// reservedPrefix: it stops at an event that has one of them.
var reserved = []string{"id", "eventType", "schemaVersion"}

const reservedPrefix = "cdc-"

var (
	errEmpty    = errors.New("is empty")
	errNotUTF8  = errors.New("is not valid UTF-8")
	errNUL      = errors.New("has a NUL character, which PostgreSQL cannot store")
	errReserved = errors.New("is set by the connector: choose another name")
	errNoColumn = errors.New("cannot be written: the table has no column for headers (Options.Table.NoHeaders)")
	errNoValue  = errors.New("is nil: use NoPayload for an event without one")
)

// checker makes rows of events and collects their faults.
type checker struct {
	opts     *Options
	message  bool // not a row: PostgreSQL leaves the payload as it is
	index    int
	problems []Problem
	ids      map[uuid.UUID]int // the ids given, with their events
}

func (c *checker) err() error {
	if len(c.problems) == 0 {
		return nil
	}
	return &InvalidError{c.problems}
}

func (c *checker) report(field string, err error) {
	c.problems = append(c.problems, Problem{c.index, field, err})
}

// event returns e's row, of no use after a problem.
func (c *checker) event(index int, e *Event) row {
	c.index = index
	before := len(c.problems)
	c.id(e.ID)
	c.text("AggregateType", e.AggregateType)
	c.text("AggregateID", e.AggregateID)
	c.text("Type", e.Type)
	payload, payloadSize := c.payload(e.Payload)
	c.headers(e.Headers)
	if len(c.problems) > before {
		return row{}
	}
	headers, err := encodeHeaders(e.Headers)
	if err != nil {
		c.report("Headers", err)
	}
	if size := payloadSize + len(e.AggregateID) + len(headers); size > c.opts.MaxBytes {
		c.report("Payload", fmt.Errorf("makes %d bytes together with AggregateID and Headers, more than %d (Options.MaxBytes)%s",
			size, c.opts.MaxBytes, grown(payloadSize, len(payload))))
	}
	return row{e.ID, e.AggregateType, e.AggregateID, e.Type, payload, headers}
}

func (c *checker) id(id uuid.UUID) {
	if id == uuid.Nil {
		return
	}
	if first, ok := c.ids[id]; ok {
		c.report("ID", fmt.Errorf("is that of event %d too", first))
		return
	}
	if c.ids == nil {
		c.ids = map[uuid.UUID]int{}
	}
	c.ids[id] = c.index
}

func (c *checker) text(field, value string) {
	if value == "" {
		c.report(field, errEmpty)
	} else if err := storable(value); err != nil {
		c.report(field, err)
	} else if n := utf8.RuneCountInString(value); n > maxCharacters {
		c.report(field, fmt.Errorf("has %d characters, more than %d", n, maxCharacters))
	}
}

func (c *checker) payload(payload any) (encoded []byte, size int) {
	encoded, size, err := c.opts.Payload.encode(payload)
	if err != nil {
		c.report("Payload", err)
	}
	if c.message {
		size = len(encoded)
	}
	return encoded, size
}

// grown says jsonb makes a payload so large.
func grown(size, given int) string {
	if size <= given+given/2 {
		return ""
	}
	return fmt.Sprintf(": jsonb, which writes numbers without exponents, makes %d bytes of the payload's %d; "+
		"a column of type json keeps them as they are (Options.Payload)", size, given)
}

func (c *checker) headers(headers map[string]string) {
	if len(headers) == 0 {
		return
	}
	if c.opts.Table.NoHeaders && !c.message {
		c.report("Headers", errNoColumn)
		return
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		value := headers[name]
		size += len(name) + len(value)
		field := fmt.Sprintf("Headers[%q]", name)
		switch err := storable(name); {
		case name == "":
			c.report(field, errors.New("has an empty name"))
		case err != nil:
			c.report(field, fmt.Errorf("has a name that %w", err))
		case slices.Contains(reserved, name), strings.HasPrefix(name, reservedPrefix):
			c.report(field, errReserved)
		}
		if err := storable(value); err != nil {
			c.report(field, err)
		}
	}
	if size > maxHeaderBytes {
		c.report("Headers", fmt.Errorf("have %d bytes, more than %d", size, maxHeaderBytes))
	}
}

// storable returns why s cannot be text in PostgreSQL, if so.
func storable(s string) error {
	switch {
	case !utf8.ValidString(s):
		return errNotUTF8
	case strings.IndexByte(s, 0) >= 0:
		return errNUL
	}
	return nil
}
