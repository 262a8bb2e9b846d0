package registry

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// filed is a file's schema in the registry.
type filed struct {
	schemaText
	id, version int // 0 in a look at an unregistered schema
}

// ofFile registers the schema of a subject's file, or finds its number. Schemas that it
// refers to come first; open are the subjects on the way.
func (e *Encoder) ofFile(ctx context.Context, s *side, subject string, open []string) (found filed, err error) {
	path := s.Files[subject]
	if slices.Contains(open, subject) {
		return found, &unusable{fmt.Errorf("%s: %w", path, errCircle)}
	}
	if found.text, err = s.file(path); err != nil {
		return found, &unusable{fmt.Errorf("read %s: %s", path, setting.Reason(err))}
	}
	schema := sr.Schema{Schema: found.text, Type: formats[s.Format].of}
	for _, name := range s.mentioned(found.text, subject) {
		other, err := e.referredFile(ctx, s, s.References[name], append(open, subject))
		if err != nil {
			return found, err
		}
		found.refer(append(other.referred, reference{name, other.text})...)
		schema.References = append(schema.References, sr.SchemaReference{Name: name, Subject: s.References[name], Version: other.version})
	}
	found.id, found.version, err = e.register(ctx, s, subject, schema, len(open) > 0)
	return found, err
}

// file reads a file, once: later changes are for the next start.
func (s *side) file(path string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, known := s.read[path]
	if !known {
		data, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		text = string(data)
		s.read[path] = text
	}
	return text, nil
}

// unreferred is the error of a file that refers to a subject without a schema.
type unreferred struct {
	subject string
	err     error
}

func (u *unreferred) Error() string { return u.err.Error() }
func (u *unreferred) Unwrap() error { return u.err }

// referredFile is a referred schema, of a file or of the registry.
func (e *Encoder) referredFile(ctx context.Context, s *side, subject string, open []string) (found filed, err error) {
	if s.Files[subject] != "" {
		return e.ofFile(ctx, s, subject, open)
	}
	latest, err := e.client.version(ctx, subject, -1)
	if ofSchema(err) {
		return found, &unreferred{subject, err}
	} else if err != nil {
		return found, err
	}
	referred, err := e.client.referred(ctx, latest.References)
	return filed{schemaText{latest.Schema.Schema, referred}, latest.ID, latest.Version}, err
}

// register registers a schema, or finds the number, and the version if needed: a question
// more. A look leaves an unregistered schema without, if it could be registered.
func (e *Encoder) register(ctx context.Context, s *side, subject string, schema sr.Schema, versioned bool) (id, version int, err error) {
	err = e.client.ask(ctx, func(ctx context.Context, server *sr.Client) (err error) {
		if s.Register && !e.only {
			if id, err = server.RegisterSchema(ctx, subject, schema, -1, -1); err != nil || !versioned {
				return err
			}
		}
		found, err := server.LookupSchema(ctx, subject, schema)
		id, version = found.ID, found.Version
		return err
	})
	if err == nil && (id < 1 || int64(id) > 1<<32-1 || versioned && version < 1) {
		return 0, 0, fmt.Errorf("the schema registry gives a schema the number %d, and the version %d", id, version)
	}
	if !s.Register || !e.only || !ofSchema(err) {
		return id, version, err
	}
	if slices.ContainsFunc(schema.References, func(r sr.SchemaReference) bool { return r.Version == 0 }) {
		return 0, 0, nil // the registration judges it, after those that it refers to
	}
	return 0, 0, e.compatible(ctx, subject, schema)
}

// compatible reports whether a schema could be registered.
func (e *Encoder) compatible(ctx context.Context, subject string, schema sr.Schema) error {
	var answer sr.CheckCompatibilityResult
	err := e.client.ask(ctx, func(ctx context.Context, server *sr.Client) (err error) {
		answer, err = server.CheckCompatibility(ctx, subject, -1, schema)
		return err
	})
	switch {
	case notFound(err): // the first of the subject
		return nil
	case err == nil && !answer.Is:
		return &unusable{fmt.Errorf("the schema is not compatible with the latest of subject %s", subject)}
	}
	return err
}
