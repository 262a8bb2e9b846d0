package registry_test

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/registry"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	first  = `{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"long"}]}`
	second = `{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"long"},{"name":"n","type":"int","default":3}]}`
)

// fixture is an encoder beside a stand-in registry.
type fixture struct {
	*srfake.Registry
	opts  registry.Options
	asked atomic.Int32
}

func start(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{Registry: srfake.New(), opts: registry.DefaultOptions()}
	t.Cleanup(f.Registry.Close)
	f.Intercept(func(http.ResponseWriter, *http.Request) bool { f.asked.Add(1); return false })
	f.opts.Registry.URLs = []string{f.URL()}
	f.opts.Registry.Timeout = 2 * time.Second
	f.opts.Value.Format = registry.FormatAvro
	return f
}

func (f *fixture) encoder(t *testing.T) *registry.Encoder {
	t.Helper()
	e, err := registry.New(f.opts, "eventType")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func event(key, value string) *transform.Event {
	return &transform.Event{Record: kgo.Record{
		Topic: "orders", Key: []byte(key), Value: []byte(value),
		Headers: []kgo.RecordHeader{{Key: "eventType", Value: []byte("OrderPlaced")}},
	}}
}

// encode encodes as the sink does, but asks once.
func encode(t *testing.T, e *registry.Encoder, ev *transform.Event) error {
	t.Helper()
	known, err := e.Encode(ev)
	if known {
		return err
	}
	if err := e.Learn(t.Context(), ev); err != nil {
		return err
	}
	if known, err = e.Encode(ev); !known {
		t.Fatal("the schema is not known after Learn")
	}
	return err
}

func (f *fixture) wants(t *testing.T, e *registry.Encoder, ev *transform.Event, want string) {
	t.Helper()
	if err := encode(t, e, ev); err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(ev.Record.Value); got != want {
		t.Errorf("value %s, want %s", got, want)
	}
}

func (f *fixture) seed(t *testing.T, subject, text string) int {
	t.Helper()
	id, _, err := f.RegisterSchema(subject, sr.Schema{Schema: text})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestSchemaOfTheSubject(t *testing.T) {
	for _, c := range []struct{ name, strategy, record, subject string }{
		{"topic", registry.SubjectTopic, "${type}", "orders-value"},
		{"record", registry.SubjectRecord, "shop.${type}", "shop.OrderPlaced"},
		{"topic and record", registry.SubjectTopicRecord, "shop.${type}", "orders-shop.OrderPlaced"},
		{"one record", registry.SubjectRecord, "shop.Order", "shop.Order"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := start(t)
			f.opts.Value.Subject, f.opts.Value.Record = c.strategy, c.record
			id := f.seed(t, c.subject, first)
			e, ev := f.encoder(t), event("k", `{"id":7}`)
			f.wants(t, e, ev, fmt.Sprintf("00%08x0e", id))
			if key, value := ev.Plain(); string(key) != "k" || string(value) != `{"id":7}` || string(ev.Record.Key) != "k" {
				t.Errorf("the plain form is %s, %s", key, value)
			}
			asked := f.asked.Load()
			f.wants(t, e, event("k", `{"id":8}`), fmt.Sprintf("00%08x10", id))
			if f.asked.Load() != asked {
				t.Error("the registry is asked again")
			}
		})
	}
}

func TestSchemaByVersionAndNumber(t *testing.T) {
	f := start(t)
	one, two := f.seed(t, "orders-value", first), f.seed(t, "orders-value", second)
	f.wants(t, f.encoder(t), event("k", `{"id":7}`), fmt.Sprintf("00%08x0e06", two))
	f.opts.Value.Version = "1"
	f.wants(t, f.encoder(t), event("k", `{"id":7}`), fmt.Sprintf("00%08x0e", one))
	f.opts.Value.Version, f.opts.Value.SchemaID = registry.VersionLatest, one
	f.wants(t, f.encoder(t), event("k", `{"id":7}`), fmt.Sprintf("00%08x0e", one))
}

func TestSchemaOfAFile(t *testing.T) {
	f := start(t)
	path := filepath.Join(t.TempDir(), "order.avsc")
	if err := os.WriteFile(path, []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	f.opts.Value.Files = map[string]string{"orders-value": path}
	err := encode(t, f.encoder(t), event("k", `{"id":7}`))
	waits(t, err, "register "+path+" under subject orders-value, or set encoding.value.register to true")
	f.opts.Value.Register = true
	only := f.encoder(t)
	only.LookOnly()
	if err := encode(t, only, event("k", `{"id":7}`)); err != nil || f.SubjectExists("orders-value") {
		t.Errorf("a look has registered the schema, or failed: %v", err)
	}
	f.wants(t, f.encoder(t), event("k", `{"id":7}`), "00000000010e")
	f.opts.Value.Register = false
	f.wants(t, f.encoder(t), event("k", `{"id":7}`), "00000000010e")
}

func TestReferredSchemas(t *testing.T) {
	f := start(t)
	f.seed(t, "line", `{"type":"record","name":"shop.Line","fields":[{"name":"sku","type":"string"}]}`)
	_, _, err := f.RegisterSchema("orders-value", sr.Schema{
		Schema:     `{"type":"record","name":"shop.Order","fields":[{"name":"line","type":"shop.Line"}]}`,
		References: []sr.SchemaReference{{Name: "shop.Line", Subject: "line", Version: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.wants(t, f.encoder(t), event("k", `{"line":{"sku":"a"}}`), "00000000020261")
}

func TestKeys(t *testing.T) {
	f := start(t)
	f.opts.Value.Format, f.opts.Key.Format = registry.FormatNone, registry.FormatAvro
	id := f.seed(t, "orders-key", `"string"`)
	e, ev := f.encoder(t), event("k", `x`)
	f.wants(t, e, ev, hex.EncodeToString([]byte("x")))
	if got := hex.EncodeToString(ev.Record.Key); got != fmt.Sprintf("00%08x026b", id) {
		t.Errorf("key %s", got)
	}
	ev = event("", `x`)
	ev.Record.Key = nil
	if err := encode(t, e, ev); err != nil || ev.Record.Key != nil {
		t.Errorf("no key became %x, %v", ev.Record.Key, err)
	}
}

func TestTombstonesStay(t *testing.T) {
	f := start(t)
	ev := event("k", "")
	ev.Record.Value = nil
	if err := encode(t, f.encoder(t), ev); err != nil || ev.Record.Value != nil {
		t.Errorf("no value became %x, %v", ev.Record.Value, err)
	}
}

func TestEncodedBytesPass(t *testing.T) {
	f := start(t)
	f.opts.Value.Format = registry.FormatEncoded
	id := f.seed(t, "any", first)
	e := f.encoder(t)
	frame := fmt.Sprintf("\x00\x00\x00\x00%c\x0e", id)
	f.wants(t, e, event("k", frame), hex.EncodeToString([]byte(frame)))
	bad(t, encode(t, e, event("k", "\x00\x00\x00\x00\x63\x0e")), transform.ReasonUnknownSchema, "value: the schema registry has no schema 99")
	for _, frame := range []string{"", `{"id":1}`, "\x00\x00\x00\x01", "\x01\x00\x00\x00\x01"} {
		bad(t, encode(t, e, event("k", frame)), transform.ReasonSchemaMismatch, "value does not begin with a zero byte and the number of a schema")
	}
	f.opts.Registry.URLs = nil
	f.wants(t, f.encoder(t), event("k", "\x00\x00\x00\x00\x63\x0e"), "00000000630e")
}

func TestDataThatDoesNotFit(t *testing.T) {
	f := start(t)
	id := f.seed(t, "orders-value", first)
	e := f.encoder(t)
	of := fmt.Sprintf("value, by schema %d: ", id)
	bad(t, encode(t, e, event("k", `{"id":"x"}`)), transform.ReasonSchemaMismatch, of+`id: "x" is no value of type long`)
	bad(t, encode(t, e, event("k", `{`)), transform.ReasonInvalidJSON, of+"the document: is not valid JSON")
	bad(t, encode(t, e, event("k", "\"\xff\"")), transform.ReasonInvalidUTF8, of+"the document: is not valid UTF-8")
	f.opts.Value.Subject, f.opts.Value.Record = registry.SubjectRecord, "${type}"
	ev := event("k", `{"id":7}`)
	ev.Record.Headers = nil
	bad(t, encode(t, f.encoder(t), ev), transform.ReasonUnknownSchema, "the event has no type, of which encoding.value.record makes the name of a subject")
}

// A schema evolves while events are encoded, and a dead registry takes no known schema away.
func TestLatestIsLookedForAgain(t *testing.T) {
	f := start(t)
	e, now := f.encoder(t), time.Now()
	e.SetClock(func() time.Time { return now })
	one := f.seed(t, "orders-value", first)
	f.wants(t, e, event("k", `{"id":7}`), fmt.Sprintf("00%08x0e", one))
	two := f.seed(t, "orders-value", second)
	f.wants(t, e, event("k", `{"id":7}`), fmt.Sprintf("00%08x0e", one))
	now = now.Add(f.opts.Registry.Refresh + 1)
	f.wants(t, e, event("k", `{"id":7}`), fmt.Sprintf("00%08x0e06", two))
	f.Registry.Close()
	now = now.Add(f.opts.Registry.Refresh + 1)
	f.wants(t, e, event("k", `{"id":7}`), fmt.Sprintf("00%08x0e06", two))
	if known, _ := e.Encode(event("k", `{"id":7}`)); !known {
		t.Error("the registry, which is down, is asked with each event")
	}
}

// Failure mode 212. A registry restored from a backup gives other numbers, or gives a number to another
// schema. Whatever named the schema, records follow within refresh.
func TestRestoredRegistry(t *testing.T) {
	other := `{"type":"record","name":"Other","fields":[{"name":"x","type":"string"}]}`
	path := filepath.Join(t.TempDir(), "order.avsc")
	must.OK(t, os.WriteFile(path, []byte(first), 0o600))
	for name, c := range map[string]struct {
		set    func(*registry.Form)
		before []string // the schemas of orders-value
		after  [][2]string
		want   string
	}{
		"another number":                        {func(*registry.Form) {}, []string{first}, [][2]string{{"other", other}, {"orders-value", first}}, "00000000020e"},
		"another number, fixed":                 {func(f *registry.Form) { f.Version = "1" }, []string{first}, [][2]string{{"other", other}, {"orders-value", first}}, "00000000020e"},
		"another schema":                        {func(*registry.Form) {}, []string{first}, [][2]string{{"orders-value", second}}, "00000000010e06"},
		"another schema, fixed":                 {func(f *registry.Form) { f.SchemaID = 1 }, []string{first}, [][2]string{{"orders-value", second}}, "00000000010e06"},
		"a file, and no subject":                {func(f *registry.Form) { f.Files, f.Register = map[string]string{"orders-value": path}, true }, nil, [][2]string{{"other", other}}, "00000000020e"},
		"no subject, no number":                 {func(*registry.Form) {}, []string{first}, nil, ""},
		"no subject, and the number of another": {func(*registry.Form) {}, []string{first}, [][2]string{{"other", other}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			c.set(&f.opts.Value)
			for _, text := range c.before {
				f.seed(t, "orders-value", text)
			}
			e, now := f.encoder(t), time.Now()
			e.SetClock(func() time.Time { return now })
			f.wants(t, e, event("k", `{"id":7}`), "00000000010e")
			f.Reset()
			for _, schema := range c.after {
				f.seed(t, schema[0], schema[1])
			}
			now = now.Add(f.opts.Registry.Refresh + 1)
			if c.want != "" {
				f.wants(t, e, event("k", `{"id":7}`), c.want)
				return
			}
			waits(t, encode(t, e, event("k", `{"id":7}`)), "register a schema under subject orders-value")
		})
	}
}

// The number of a deleted subject's schema stays readable: the schema goes on.
func TestSubjectIsDeleted(t *testing.T) {
	f := start(t)
	f.seed(t, "orders-value", first)
	e, now := f.encoder(t), time.Now()
	e.SetClock(func() time.Time { return now })
	f.wants(t, e, event("k", `{"id":7}`), "00000000010e")
	f.Intercept(func(w http.ResponseWriter, r *http.Request) bool { // a soft deletion, which the stand-in has not
		if !strings.HasPrefix(r.URL.Path, "/subjects/") {
			return false
		}
		status(404, `{"error_code":40401,"message":"Subject 'orders-value' not found."}`)(w, r)
		return true
	})
	now = now.Add(f.opts.Registry.Refresh + 1)
	f.wants(t, e, event("k", `{"id":7}`), "00000000010e")
	if known, _ := e.Encode(event("k", `{"id":7}`)); !known {
		t.Error("the registry is asked with each event")
	}
}

// Many known schemas are due, and the registry does not answer: a single question waits for it.
func TestSilentRegistryIsAskedOnce(t *testing.T) {
	f := start(t)
	e, now := f.encoder(t), time.Now()
	e.SetClock(func() time.Time { return now })
	of := func(i int) *transform.Event {
		ev := event("k", `{"id":7}`)
		ev.Record.Topic = fmt.Sprint("topic", i)
		return ev
	}
	for i := range 50 {
		f.seed(t, of(i).Record.Topic+"-value", first)
		f.wants(t, e, of(i), "00000000010e")
	}
	var silent atomic.Bool
	f.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if silent.Load() {
			status(503, "")(w, r)
		}
		return silent.Load()
	})
	for range 3 {
		f.asked.Store(0)
		silent.Store(true)
		now = now.Add(f.opts.Registry.Refresh + 1)
		for i := range 50 {
			f.wants(t, e, of(i), "00000000010e")
		}
		if n := f.asked.Load(); n != 1 {
			t.Errorf("the registry is asked %d times", n)
		}
	}
}

// A 404 of a proxy is none of the registry: no event is bad for it.
func TestNotFoundByAProxy(t *testing.T) {
	f := start(t)
	f.opts.MissingSchema = registry.MissingBadEvent
	proxy := httptest.NewServer(status(404, `<html>default backend - 404</html>`))
	defer proxy.Close()
	f.opts.Registry.URLs = []string{proxy.URL}
	waits(t, encode(t, f.encoder(t), event("k", `{"id":7}`)), "correct encoding.registry.urls")
	f.opts.Value.Format = registry.FormatEncoded
	waits(t, encode(t, f.encoder(t), event("k", "\x00\x00\x00\x00\x01x")), "correct encoding.registry.urls")
}

// An answer without a number is none: records would name schema 0.
func TestRegistrationWithoutANumber(t *testing.T) {
	f := start(t)
	path := filepath.Join(t.TempDir(), "order.avsc")
	must.OK(t, os.WriteFile(path, []byte(first), 0o600))
	f.opts.Value.Files, f.opts.Value.Register = map[string]string{"orders-value": path}, true
	for _, answer := range []string{`{}`, `{"id":0}`, `{"id":-1}`, `{"id":4294967297}`} {
		server := httptest.NewServer(status(200, answer))
		f.opts.Registry.URLs = []string{server.URL}
		waits(t, encode(t, f.encoder(t), event("k", `{"id":7}`)), "")
		server.Close()
	}
}

func TestCacheIsBounded(t *testing.T) {
	f := start(t)
	f.opts.Registry.CacheSize = 2
	e := f.encoder(t)
	at := func(topic string) *transform.Event {
		ev := event("k", `{"id":7}`)
		ev.Record.Topic = topic
		return ev
	}
	for _, topic := range []string{"a", "b", "c"} {
		f.seed(t, topic+"-value", first)
	}
	for _, topic := range []string{"a", "b", "a", "c"} { // drops b
		if err := encode(t, e, at(topic)); err != nil {
			t.Fatal(err)
		}
	}
	for topic, want := range map[string]bool{"a": true, "b": false, "c": true} {
		if known, _ := e.Encode(at(topic)); known != want {
			t.Errorf("%s is known: %v", topic, known)
		}
	}
}

// Every answer without a schema is a reason to wait, with a remedy.
func TestAnswersToWaitFor(t *testing.T) {
	for name, c := range map[string]struct {
		answer       http.HandlerFunc
		text, remedy string
	}{
		"401":          {status(401, `{"error_code":401,"message":"Unauthorized"}`), "answers 401 to GET", "correct encoding.registry.username"},
		"403":          {status(403, `{"error_code":40301,"message":"denied"}`), "answers 403 (40301) to GET", "the right to read the subject"},
		"404":          {status(404, `{"error_code":40401,"message":"Subject 'orders-value' not found."}`), "answers 404 (40401)", "register a schema under subject orders-value"},
		"409":          {status(409, `{"message":["a","b"],"error_code":409}`), "answers 409 to GET", "register a schema"},
		"422":          {status(422, ``), "answers 422", "register a schema"},
		"429":          {status(429, `slow down`), "answers 429", "limit of requests"},
		"500":          {status(500, `{"error_code":50001,"message":"store"}`), "answers 500 (50001)", "schema registry's log"},
		"garbage":      {status(200, `<html>`), "unable to decode ok response body", "correct encoding.registry.urls"},
		"no schema":    {status(200, `{"id":1}`), "without a text", ""},
		"another type": {status(200, `{"id":1,"schemaType":"JSON","schema":"{}"}`), "schema 1 is of the type JSON", "correct the schema, or encoding.value.format"},
		"unreadable":   {status(200, `{"id":1,"schema":"\"missing\""}`), `schema 1: type "missing" is not known`, "correct the schema"},
		"too large":    {status(200, `"`+strings.Repeat("x", 17<<20)), "too large", "correct encoding.registry.urls"},
		"slow":         {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no answer within 200ms", "start the schema registry"},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			server := httptest.NewServer(c.answer)
			defer server.Close()
			f.opts.Registry.URLs, f.opts.Registry.Timeout = []string{server.URL}, 200*time.Millisecond
			if name == "too large" {
				f.opts.Registry.Timeout = 20 * time.Second
			}
			err := encode(t, f.encoder(t), event("k", `{"id":7}`))
			waits(t, err, c.remedy)
			if !strings.Contains(err.Error(), c.text) || len(err.Error()) > 600 {
				t.Errorf("%v, want %s", err, c.text)
			}
		})
	}
}

func TestMissingSchemaAsBadEvent(t *testing.T) {
	f := start(t)
	f.opts.MissingSchema = registry.MissingBadEvent
	err := encode(t, f.encoder(t), event("k", `{"id":7}`))
	if b, ok := errors.AsType[*transform.BadEvent](err); !ok || b.Reason != transform.ReasonUnknownSchema {
		t.Errorf("got %v", err)
	}
	f.Registry.Close()
	waits(t, encode(t, f.encoder(t), event("k", `{"id":7}`)), "start the schema registry")
}

// Of a backlog of events with a missing schema not each asks; soon after a registration none is
// bad any more. A known schema keeps its place beside many missing ones.
func TestMissingSchemaIsAskedForNowAndThen(t *testing.T) {
	f := start(t)
	f.opts.MissingSchema, f.opts.Registry.CacheSize = registry.MissingBadEvent, 10
	e, now := f.encoder(t), time.Now()
	e.SetClock(func() time.Time { return now })
	of := func(topic string) *transform.Event {
		ev := event("k", `{"id":7}`)
		ev.Record.Topic = topic
		return ev
	}
	f.seed(t, "known-value", first)
	f.wants(t, e, of("known"), "00000000010e")
	for range 100 {
		if _, isBad := errors.AsType[*transform.BadEvent](encode(t, e, of("orders"))); !isBad {
			t.Fatal("the event is not bad")
		}
	}
	for i := range 20 {
		_ = encode(t, e, of(fmt.Sprint("other", i)))
	}
	if n := f.asked.Load(); n != 22 {
		t.Errorf("the registry is asked %d times, want 22", n)
	}
	if known, err := e.Encode(of("known")); !known || err != nil {
		t.Errorf("the known schema was dropped: %v", err)
	}
	id := f.seed(t, "orders-value", second)
	now = now.Add(time.Second)
	f.wants(t, e, of("orders"), fmt.Sprintf("00%08x0e06", id))
}

func TestOtherServersAreAsked(t *testing.T) {
	f := start(t)
	f.seed(t, "orders-value", first)
	down := httptest.NewServer(status(503, ""))
	defer down.Close()
	f.opts.Registry.URLs = []string{"http://127.0.0.1:1", down.URL, f.URL()}
	e := f.encoder(t)
	if err := e.Reach(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.wants(t, e, event("k", `{"id":7}`), "00000000010e")
}

func TestCredentials(t *testing.T) {
	for want, set := range map[string]func(*registry.Server){
		"Basic dTpw": func(s *registry.Server) { s.Username, s.Password = "u", "p" },
		"Bearer t":   func(s *registry.Server) { s.Token = "t" },
	} {
		f := start(t)
		f.Registry.Close()
		f.Registry = srfake.New(srfake.WithAuth(want))
		t.Cleanup(f.Registry.Close)
		f.opts.Registry.URLs = []string{f.URL()}
		if err := f.encoder(t).Reach(t.Context()); err == nil {
			t.Error("a registry with a password is reached without")
		}
		set(&f.opts.Registry)
		if err := f.encoder(t).Reach(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A login in files is read for each request; without a useful file, the former goes on.
func TestCredentialsAreReadAgain(t *testing.T) {
	f := start(t)
	now := "Basic " + base64.StdEncoding.EncodeToString([]byte("u:new"))
	f.Registry.Close()
	f.Registry = srfake.New(srfake.WithAuth(now))
	t.Cleanup(f.Registry.Close)
	file := filepath.Join(t.TempDir(), "password")
	must.OK(t, os.WriteFile(file, []byte("old"), 0o600))
	server := &f.opts.Registry
	server.URLs, server.Username, server.Password = []string{f.URL()}, "u", "old"
	server.Written = setting.Files{"password": {{Path: file}}}
	e := f.encoder(t)
	waits(t, e.Reach(t.Context()), file)
	must.OK(t, os.WriteFile(file, []byte("new\n"), 0o600))
	must.OK(t, e.Reach(t.Context()))
	must.OK(t, os.Remove(file))
	must.OK(t, e.Reach(t.Context()))
	if troubles := f.opts.Present(); len(troubles) != 1 || !strings.HasPrefix(troubles[0].Error(), "encoding.registry.password ") || failure.RemedyOf(troubles[0]) == "" {
		t.Errorf("troubles %v", troubles)
	}
}

func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}
}

// waits checks for a passing error, with the remedy.
func waits(t *testing.T, err error, remedy string) {
	t.Helper()
	if _, bad := errors.AsType[*transform.BadEvent](err); err == nil || bad || failure.ClassOf(err) != failure.Transient {
		t.Fatalf("%v is no reason to wait", err)
	}
	if got := failure.RemedyOf(err); !strings.Contains(got, remedy) {
		t.Errorf("remedy %q, want %q", got, remedy)
	}
}

func bad(t *testing.T, err error, reason transform.Reason, text string) {
	t.Helper()
	if b, ok := errors.AsType[*transform.BadEvent](err); !ok || b.Reason != reason || b.Err.Error() != text {
		t.Errorf("got %v, want %s: %s", err, reason, text)
	}
}
