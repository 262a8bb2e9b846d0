package registry

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// find asks for the schema of the data. before is the entry known so far, or nil.
func (e *Encoder) find(ctx context.Context, s *side, ev *transform.Event, data []byte, before *entry) (*entry, error) {
	if s.Format == FormatEncoded {
		return e.exists(ctx, s, data)
	}
	w := s.wanted(&ev.Record, e.typeHeader)
	found, err := e.schema(ctx, s, w, before)
	if err == nil || !missing(err) {
		return found, err
	}
	remedy := s.remedyFor(w.subject, err)
	if e.policy == MissingBadEvent {
		return nil, &transform.BadEvent{Reason: transform.ReasonUnknownSchema, Err: &failure.Error{Remedy: remedy, Err: err}}
	}
	return nil, &failure.Error{Remedy: remedy + ", or set encoding.missing_schema to bad_event", Err: err}
}

// missing reports whether the schema is missing, refused or of no use, and the registry is well.
func missing(err error) bool { return ofSchema(err) || errors.As(err, new(*unusable)) }

// sum stands for a schema of the registry, with its references.
type sum [sha256.Size]byte

func sumOf(schema sr.Schema) sum {
	return sha256.Sum256(fmt.Appendf(nil, "%v %q %+v", schema.Type, schema.Schema, schema.References))
}

// stands reports whether a known schema, looked for in vain, still has its number: the schema of a
// deleted subject, for example. A registry restored from a backup may give the number to another
// schema. Without an answer, the schema stands.
func (e *Encoder) stands(ctx context.Context, before *entry) bool {
	var found sr.Schema
	err := e.client.ask(ctx, func(ctx context.Context, server *sr.Client) (err error) {
		found, err = server.SchemaByID(ctx, int(before.id))
		return err
	})
	if err != nil {
		return !ofSchema(err)
	}
	return before.text == sum{} || before.text == sumOf(found)
}

// remedyFor is the remedy for a missing schema.
func (s *side) remedyFor(subject string, err error) string {
	option := "encoding." + s.name
	var other *unreferred
	switch {
	case errors.As(err, &other):
		return fmt.Sprintf("register a schema under subject %s, or correct %s.references", other.subject, option)
	case errors.Is(err, errNoMessage):
		return "correct the schema, or " + option + ".message"
	case errors.As(err, new(*unusable)):
		return "correct the schema, or " + option + ".format"
	case s.SchemaID > 0:
		return "correct " + option + ".schema_id"
	case s.Files[subject] != "" && s.Register:
		return fmt.Sprintf("correct %s, or the compatibility of subject %s", s.Files[subject], subject)
	case s.Files[subject] != "":
		return fmt.Sprintf("register %s under subject %s, or set %s.register to true", s.Files[subject], subject, option)
	}
	return fmt.Sprintf("register a schema under subject %s, or correct %s.subject", subject, option)
}

// unusable is the error of a schema of no use.
type unusable struct{ err error }

func (u *unusable) Error() string { return u.err.Error() }
func (u *unusable) Unwrap() error { return u.err }

// exists looks for the schema of data in the wire format.
func (e *Encoder) exists(ctx context.Context, s *side, data []byte) (*entry, error) {
	id := binary.BigEndian.Uint32(data[1:])
	if e.client == nil {
		return &entry{id: id}, nil
	}
	found, err := e.client.exists(ctx, id)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, &transform.BadEvent{Reason: transform.ReasonUnknownSchema, Err: fmt.Errorf("%s: the schema registry has no schema %d", s.name, id)}
	}
	return &entry{id: id}, nil
}

// schema asks for the schema of a subject.
func (e *Encoder) schema(ctx context.Context, s *side, w wanted, before *entry) (*entry, error) {
	if s.SchemaID > 0 {
		var found sr.Schema
		err := e.client.ask(ctx, func(ctx context.Context, server *sr.Client) (err error) {
			found, err = server.SchemaByID(ctx, s.SchemaID)
			return err
		})
		if err != nil {
			return nil, err
		}
		return e.use(ctx, s, w, s.SchemaID, found, before)
	}
	if s.Files[w.subject] != "" {
		found, err := e.ofFile(ctx, s, w.subject, nil)
		if err != nil {
			return nil, err
		}
		if before != nil && before.id == uint32(found.id) { // of the same file
			return &entry{id: before.id, codec: before.codec}, nil
		}
		return s.parse(w, found.id, found.schemaText)
	}
	version := -1
	if s.Version != VersionLatest {
		version, _ = strconv.Atoi(s.Version) // validated
	}
	found, err := e.client.version(ctx, w.subject, version)
	if err != nil {
		return nil, err
	}
	return e.use(ctx, s, w, found.ID, found.Schema, before)
}

// use makes an entry of a schema of the registry, or keeps the former. The number alone does
// not tell: a registry restored from a backup gives numbers again.
func (e *Encoder) use(ctx context.Context, s *side, w wanted, id int, schema sr.Schema, before *entry) (*entry, error) {
	if id < 1 || int64(id) > 1<<32-1 || schema.Schema == "" {
		return nil, fmt.Errorf("the schema registry gives a schema without a text, or the number %d", id)
	}
	text := sumOf(schema)
	if before != nil && before.id == uint32(id) && before.text == text {
		return &entry{id: before.id, codec: before.codec, text: text}, nil
	}
	if of := formats[s.Format].of; schema.Type != of {
		return nil, &unusable{fmt.Errorf("schema %d is of the type %s, and encoding.%s.format is %s", id, schema.Type, s.name, s.Format)}
	}
	referred, err := e.client.referred(ctx, schema.References)
	if err != nil {
		return nil, err
	}
	found, err := s.parse(w, id, schemaText{schema.Schema, referred})
	if err != nil {
		return nil, err
	}
	found.text = text
	return found, nil
}

// parse makes an entry of a schema.
func (s *side) parse(w wanted, id int, text schemaText) (*entry, error) {
	codec, err := formats[s.Format].parse(text, parsing{ignoreUnknown: s.UnknownFields == UnknownIgnore, message: w.message, unchecked: !s.Validate})
	if err != nil {
		return nil, &unusable{fmt.Errorf("schema %d: %w", id, err)}
	}
	return &entry{id: uint32(id), codec: codec}, nil
}
