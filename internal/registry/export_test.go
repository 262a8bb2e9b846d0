package registry

import "time"

// SetClock has the encoder ask now for the time.
func (e *Encoder) SetClock(now func() time.Time) { e.value.now, e.key.now = now, now }

// Known is the number of schemas kept for values.
func (e *Encoder) Known() int {
	e.value.mu.Lock()
	defer e.value.mu.Unlock()
	return len(e.value.known.byName)
}

// Codec is a format's writer by a schema, for tests without a registry.
type Codec struct {
	Format, Schema, Message string
	Ignore, Unchecked       bool
	Referred                map[string]string // texts by name
}

// Append writes a document, behind a prefix.
func (c Codec) Append(prefix, document string, text bool) (string, error) {
	write, err := c.Parse()
	if err != nil {
		return "", err
	}
	out, err := write([]byte(prefix), []byte(document), text)
	return string(out), err
}

// Parse parses the schema once, for many documents.
func (c Codec) Parse() (write func(dst, document []byte, text bool) ([]byte, error), err error) {
	s := schemaText{text: c.Schema}
	for name, text := range c.Referred {
		s.refer(reference{name, text})
	}
	made, err := formats[c.Format].parse(s, parsing{c.Ignore, c.Message, c.Unchecked})
	if err != nil {
		return nil, err
	}
	return made.append, nil
}
