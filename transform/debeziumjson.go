package transform

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

var (
	errEmptyName = errors.New("a member has an empty name")
	errNoSchema  = errors.New("an empty array has no schema")
)

// untyped is the shape of a payload without any schema.
var untyped = &shape{}

// appendShaped appends a payload expanded as by Debezium. After an error the payload
// stays a string.
func (b *builder) appendShaped(dst []byte, v pg.Value, opts expandOptions) ([]byte, *shape, error) {
	text, err := b.expandable(v)
	if err != nil {
		return nil, nil, err
	}
	s := &b.router.shaper
	s.opts = opts
	if err := s.read(text); err != nil {
		return nil, nil, errNotExpandable
	}
	of, err := s.infer(0, payloadField(b.plan), true)
	switch {
	case err != nil:
		return nil, nil, err
	case of == nil:
		return nil, nil, errNoSchema
	}
	out, err := s.append(dst, 0, of)
	return out, of, err
}

// payloadField is the payload column's name, as part of a JSON string.
func payloadField(p *plan) string {
	quoted := appendQuoted(nil, p.payload.name)
	return string(quoted[1 : len(quoted)-1])
}

// expandable returns the text of a payload for expansion.
func (b *builder) expandable(v pg.Value) ([]byte, error) {
	text := v.Data
	if b.plan.payload.as != nil {
		if v.Kind != pg.Text {
			return nil, errNotExpandable
		}
		value, err := b.plan.payload.value(v.Data)
		if err != nil {
			return nil, err
		}
		s, ok := value.(string)
		if !ok {
			return nil, errNotExpandable
		}
		text = []byte(s)
	}
	if len(text) == 0 || text[0] != '{' && text[0] != '[' {
		return nil, errNotExpandable
	}
	return text, nil
}

// jsonKey is the key as JsonConverter writes it.
func (b *builder) jsonKey() []byte {
	c, v := b.plan.key, b.get(b.plan.key)
	compat := b.router.event.Compat == CompatDebezium
	var out []byte
	if b.router.event.Debezium.KeySchemas {
		out = append(append(append(out, `{"schema":`...), c.compat.schema...), `,"payload":`...)
	}
	out, err := c.appendJSON(out, v)
	switch {
	case errors.Is(err, errNotUTF8):
		b.reject(ReasonInvalidUTF8, fmt.Errorf("column %q: %w", c.name, err))
		return v.Data
	case err != nil:
		b.reject(ReasonUnreadableContents, fmt.Errorf("column %q: %w", c.name, err))
		return v.Data
	}
	if b.router.event.Debezium.KeySchemas {
		out = append(out, '}')
	}
	if compat {
		out = escapeAstral(out)
	}
	b.event.made += cap(out)
	return out
}

// appendValueSchema appends the schema of the value; of is the shape of an expanded
// payload.
func (b *builder) appendValueSchema(dst []byte, of *shape) ([]byte, error) {
	p := b.plan
	if !b.router.envelope {
		return appendPayloadSchema(dst, p, of), nil
	}
	if of == untyped {
		of = nil
	}
	dst = append(dst, `{"type":"struct","fields":[`...)
	dst = appendFieldName(appendPayloadSchema(dst, p, of), payloadMember)
	for _, member := range p.envelope {
		dst = appendFieldName(append(append(dst, ','), member.compat.schema...), member.alias)
	}
	dst = append(dst, `],"optional":false,"name":`...)
	route := b.get(p.route)
	dst = appendQuoted(dst, p.schemaName+string(route.Data)+".Value")
	if v := b.get(p.version); v.Kind == pg.Text {
		n, err := strconv.ParseInt(string(v.Data), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", p.version.name, err)
		}
		dst = strconv.AppendInt(append(dst, `,"version":`...), n, 10)
	}
	return append(dst, '}'), nil
}

func appendPayloadSchema(dst []byte, p *plan, of *shape) []byte {
	switch of {
	case nil:
		return append(dst, p.payload.compat.schema...)
	case untyped:
		return append(dst, "null"...)
	}
	return of.appendSchema(dst)
}

// schemaPrefix begins the names of a table's schemas: Debezium's topic of the table,
// and a dot.
func schemaPrefix(topicPrefix string, rel *pg.Relation) string {
	name := strings.Map(func(c rune) rune {
		if setting.TopicCharacter(c) {
			return c
		}
		return '_'
	}, topicPrefix+"."+rel.Namespace+"."+rel.Name)
	return name + "."
}

// columnSchema is the schema's JSON of the bound column.
func (h Handling) columnSchema(c column, of pg.Column) []byte {
	var value []byte
	if text := c.compat.standard; text != nil {
		value, _ = c.appendJSON(nil, pg.Value{Kind: pg.Text, Data: text})
		if bytes.Equal(value, []byte("null")) {
			value = nil
		}
	}
	return h.schema(of).append(nil, !of.Details.NotNull, value)
}
