package registry

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

var _ sink.Encoder = (*Encoder)(nil)

// unregisteredPace is how often an unregistered schema is looked for, where it is not to be
// registered.
const unregisteredPace = time.Second

// missingPace is how often a missing schema is looked for that makes events bad: not for each of a
// backlog of events, whose questions would use up the registry's limit of requests.
const missingPace = 50 * time.Millisecond

// frame is the size of a zero byte and the number of the schema, before the data.
const frame = 5

// Encoder is the sink.Encoder of the section encoding, safe for concurrent use.
type Encoder struct {
	client     *client  // nil: no question is needed
	urls       []string // of the registry
	value, key *side
	policy     string
	typeHeader string
	only       bool   // registers nothing
	schemas    string // begins the URI of a schema in CloudEvents; empty: there are none
}

// side is the encoding of values or of keys.
type side struct {
	Form
	name    string // value or key
	key     bool
	refresh time.Duration
	now     func() time.Time

	mu      sync.Mutex
	known   *cache
	missing *cache // just looked for in vain
	buffer  []byte
	away    time.Time         // until then, known schemas are not looked for again: the registry has not answered
	read    map[string]string // files by path, as first read
}

// New returns an Encoder, without any question to the registry. typeHeader is the header
// with the event's type. The options have passed Validate; an error is about files.
func New(o Options, typeHeader string) (*Encoder, error) {
	e := &Encoder{policy: o.MissingSchema, typeHeader: typeHeader, urls: o.Registry.URLs}
	of := func(f Form, name string) *side {
		return &side{Form: f, name: name, key: name == "key", refresh: o.Registry.Refresh, now: time.Now, known: newCache(o.Registry.CacheSize), missing: newCache(o.Registry.CacheSize), read: make(map[string]string)}
	}
	e.value, e.key = of(o.Value, "value"), of(o.Key, "key")
	if len(o.Registry.URLs) > 0 {
		var err error
		if e.client, err = newClient(o.Registry); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// LookOnly has Learn register nothing, and only check an unregistered schema.
func (e *Encoder) LookOnly() { e.only = true }

// NameSchemas has Encode give CloudEvents the schema of their data.
func (e *Encoder) NameSchemas() {
	if len(e.urls) > 0 {
		e.schemas = strings.TrimSuffix(e.urls[0], "/") + "/schemas/ids/"
	}
}

// Close ends idle connections. A nil Encoder has none.
func (e *Encoder) Close() {
	if e != nil && e.client != nil {
		e.client.close()
	}
}

// Reach returns nil if the registry answers.
func (e *Encoder) Reach(ctx context.Context) error {
	if e.client == nil {
		return nil
	}
	return e.client.ping(ctx)
}

// Encode implements sink.Encoder.
func (e *Encoder) Encode(ev *transform.Event) (known bool, err error) {
	if ev.Encoded() {
		return true, nil
	}
	rec := &ev.Record
	key, known, err := e.key.form(rec, rec.Key, e.typeHeader)
	if !known || err != nil {
		return known, err
	}
	value, known, err := e.value.form(rec, rec.Value, e.typeHeader)
	if !known || err != nil {
		return known, err
	}
	if e.schemas != "" && e.value.Format != FormatNone && len(value) >= frame {
		ev.SetDataSchema(strconv.AppendUint([]byte(e.schemas), uint64(binary.BigEndian.Uint32(value[1:frame])), 10))
	}
	ev.Encode(key, value)
	return true, nil
}

// Learn implements sink.Encoder.
func (e *Encoder) Learn(ctx context.Context, ev *transform.Event) error {
	for _, s := range []*side{e.key, e.value} {
		data := ev.Record.Value
		if s.key {
			data = ev.Record.Key
		}
		if _, known, err := s.form(&ev.Record, data, e.typeHeader); known || err != nil {
			continue // Encode says so, too
		}
		if err := e.learn(ctx, s, ev, data); err != nil {
			return err
		}
	}
	return nil
}

// form is the data on the wire; known is false if the schema has to be learned first. An
// error is a *transform.BadEvent.
func (s *side) form(rec *kgo.Record, data []byte, typeHeader string) (out []byte, known bool, err error) {
	if s.Format == FormatNone || data == nil || s.key && len(data) == 0 {
		return data, true, nil
	}
	s.mu.Lock()
	name, err := s.cached(rec, data, typeHeader)
	var found *entry
	stale := false
	if err == nil {
		if found = s.known.get(name); found != nil {
			now := s.now()
			stale = !found.until.IsZero() && now.After(found.until) && now.After(s.away)
		}
		if found == nil || stale {
			err = s.missed(name)
		}
	}
	s.mu.Unlock()
	switch {
	case err != nil:
		return nil, true, err
	case found == nil || stale:
		return nil, false, nil
	case found.codec == nil:
		return data, true, nil
	}
	out = make([]byte, frame, frame+len(data)+len(data)/4)
	binary.BigEndian.PutUint32(out[1:], found.id)
	if out, err = found.codec.append(out, data, s.key); err != nil {
		return nil, true, s.mismatch(found.id, err)
	}
	return out, true, nil
}

// mismatch is the bad event of data beyond the schema.
func (s *side) mismatch(id uint32, err error) *transform.BadEvent {
	reason := transform.ReasonSchemaMismatch
	switch {
	case errors.Is(err, errNotJSON):
		reason = transform.ReasonInvalidJSON
	case errors.Is(err, errNotUTF8):
		reason = transform.ReasonInvalidUTF8
	}
	return &transform.BadEvent{Reason: reason, Err: fmt.Errorf("%s, by schema %d: %w", s.name, id, err)}
}

// cached is the name of the record's schema in the cache. The caller holds mu, until the
// name is used.
func (s *side) cached(rec *kgo.Record, data []byte, typeHeader string) ([]byte, error) {
	if s.Format == FormatEncoded {
		if len(data) < frame || data[0] != 0 {
			return nil, &transform.BadEvent{Reason: transform.ReasonSchemaMismatch,
				Err: fmt.Errorf("%s does not begin with a zero byte and the number of a schema", s.name)}
		}
		return data[1:frame], nil
	}
	s.buffer = s.buffer[:0]
	if s.SchemaID == 0 && s.Subject != SubjectRecord {
		s.buffer = append(s.buffer, rec.Topic...)
	}
	if !s.typed() {
		return s.buffer, nil
	}
	of, ok := transform.Header(rec.Headers, typeHeader)
	if !ok || len(of) == 0 {
		use := "record makes the name of a subject"
		if !s.typedSubject() {
			use = "message makes the name of a message"
		}
		return nil, &transform.BadEvent{Reason: transform.ReasonUnknownSchema, Err: fmt.Errorf("the event has no type, of which encoding.%s.%s", s.name, use)}
	}
	s.buffer = append(s.buffer, 0)
	return append(s.buffer, of...), nil
}

// wanted is the schema of a record: the subject, and the message if the schema has
// several.
type wanted struct{ subject, message string }

func (s *side) wanted(rec *kgo.Record, typeHeader string) wanted {
	of, _ := transform.Header(rec.Headers, typeHeader)
	typed := strings.NewReplacer(eventType, string(of))
	record := typed.Replace(s.Record)
	w := wanted{rec.Topic + "-" + s.name, typed.Replace(s.Message)}
	switch s.Subject {
	case SubjectRecord:
		w.subject = record
	case SubjectTopicRecord:
		w.subject = rec.Topic + "-" + record
	}
	if w.message == "" && s.Subject != SubjectTopic && s.SchemaID == 0 {
		w.message = record
	}
	return w
}

// learn asks for the schema of the data, and notes the answer.
func (e *Encoder) learn(ctx context.Context, s *side, ev *transform.Event, data []byte) error {
	s.mu.Lock()
	name, err := s.cached(&ev.Record, data, e.typeHeader)
	name = bytes.Clone(name)
	before := s.known.get(name)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	found, err := e.find(ctx, s, ev, data, before)
	away := err != nil && !missing(err)
	switch {
	case err == nil:
	case ctx.Err() != nil || before == nil || !away && !e.stands(ctx, before):
		s.miss(name, err)
		return err
	default:
		found = &entry{id: before.id, codec: before.codec, text: before.text}
	}
	now := s.now()
	switch {
	case s.Format == FormatEncoded:
	case found.id == 0: // of a look: others may register it now
		found.until = now.Add(unregisteredPace)
	default:
		found.until = now.Add(s.refresh)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if away {
		s.away = now.Add(s.refresh)
	}
	s.known.put(string(name), found)
	return nil
}

// miss notes why a schema's events are bad, if they are.
func (s *side) miss(name []byte, err error) {
	bad, ok := errors.AsType[*transform.BadEvent](err)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missing.put(string(name), &entry{bad: bad, until: s.now().Add(missingPace)})
}

// missed is the fault of an event whose schema was just missing; nil: the registry has to be
// asked. The caller holds mu.
func (s *side) missed(name []byte) error {
	found := s.missing.get(name)
	if found == nil || s.now().After(found.until) {
		return nil
	}
	bad := *found.bad
	return &bad
}
