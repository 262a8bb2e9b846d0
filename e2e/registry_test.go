package e2e

import (
	"context"
	numbers "encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// schemas is a schema registry behind a server of the test: the one of the environment, as
// `make test-registry` starts one, or a stand-in.
type schemas struct {
	t        testing.TB
	url      string
	real     string // URL; "": a stand-in
	registry http.Handler
	run      string // in the names of subjects

	mu      sync.Mutex
	hold    string // "before" or "after" the registration; "": answers go through
	held    int
	refuses map[string]int // of the stand-in: status by subject
	ids     []int          // of registrations
}

func startSchemas(t testing.TB) *schemas {
	s := &schemas{t: t, real: os.Getenv(registryEnv), run: fmt.Sprint("r", time.Now().UnixNano()), refuses: make(map[string]int)}
	if s.real == "" {
		s.registry = srfake.NewRegistry().Handler()
	} else {
		target := must.Get(url.Parse(s.real))(t)
		s.registry = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// subject is a name of this test alone.
func (s *schemas) subject(name string) string { return "shop." + s.run + "." + name }

// ServeHTTP implements http.Handler. The connector has gone where an answer is held.
func (s *schemas) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	subject, registers := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/subjects/"), "/versions")
	registers = registers && r.Method == http.MethodPost
	if !registers {
		s.registry.ServeHTTP(w, r)
		return
	}
	s.mu.Lock()
	hold, refused := s.hold, s.refuses[subject]
	s.mu.Unlock()
	if hold == "before" {
		s.holds(r.Context())
		return
	}
	if refused != 0 {
		w.WriteHeader(refused)
		fmt.Fprintf(w, `{"error_code":%d,"message":"as asked"}`, refused)
		return
	}
	answer := httptest.NewRecorder()
	s.registry.ServeHTTP(answer, r)
	var found struct{ ID int }
	if answer.Code == http.StatusOK && json.Unmarshal(answer.Body.Bytes(), &found) == nil {
		s.mu.Lock()
		s.ids = append(s.ids, found.ID)
		s.mu.Unlock()
	}
	if hold == "after" {
		s.holds(r.Context())
		return
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

func (s *schemas) holds(ctx context.Context) {
	s.mu.Lock()
	s.held++
	s.mu.Unlock()
	<-ctx.Done()
}

func (s *schemas) holding(when string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = when
}

// judge has registrations under the subject refused with the status, or not with 0. The
// registry of the environment judges by itself: see compatible.
func (s *schemas) judge(subject string, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuses[subject] = status
}

// ask puts a question to the registry.
func (s *schemas) ask(method, path string, body any) {
	s.t.Helper()
	text := must.Get(json.Marshal(body))(s.t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r := must.Get(http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(string(text))))(s.t)
	r.Header.Set("Content-Type", "application/vnd.schemaregistry.v1+json")
	resp, err := http.DefaultClient.Do(r)
	must.OK(s.t, err)
	defer resp.Body.Close()
	if answer := must.Get(io.ReadAll(resp.Body))(s.t); resp.StatusCode != http.StatusOK {
		s.t.Fatalf("%s %s: %d: %s", method, path, resp.StatusCode, answer)
	}
}

// compatible sets the subject's compatibility.
func (s *schemas) compatible(subject, level string) {
	s.ask(http.MethodPut, "/config/"+subject, map[string]string{"compatibility": level})
}

// file is a schema of an event's number, with another field, if named.
func (s *schemas) file(more string) (path string) {
	path = filepath.Join(s.t.TempDir(), "order.avsc")
	must.OK(s.t, os.WriteFile(path, []byte(numbersSchema(more)), 0o600))
	return path
}

func numbersSchema(more string) string {
	return `{"type":"record","name":"Order","fields":[{"name":"n","type":"int"}` + more + `]}`
}

// numbered are the events by key, and the numbers of their schemas, in order.
type numbered struct {
	events  map[string][]int64
	schemas []int
}

// readNumbers reads until n events have come.
func (w *world) readNumbers(n int) numbered {
	w.t.Helper()
	reader := w.broker.Client(w.t, kgo.ConsumeTopics(topicOf("order")), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer reader.Close()
	got, total := numbered{events: make(map[string][]int64)}, 0
	await.Until(w.t, fmt.Sprint(n, " events"), func() bool {
		ctx, cancel := context.WithTimeout(w.t.Context(), 100*time.Millisecond)
		defer cancel()
		reader.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			total++
			if len(r.Value) < 6 || r.Value[0] != 0 {
				w.t.Errorf("value %x", r.Value)
				return
			}
			event, _ := numbers.Varint(r.Value[5:])
			got.events[string(r.Key)] = append(got.events[string(r.Key)], event)
			if id := int(numbers.BigEndian.Uint32(r.Value[1:])); !slices.Contains(got.schemas, id) {
				got.schemas = append(got.schemas, id)
			}
		})
		return total >= n
	})
	return got
}

func (w *world) placeAs(kind, key string, n int) {
	w.t.Helper()
	w.exec(fmt.Sprintf(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', '%s', '%s', '{"n":%d}')`, key, kind, n))
}

// inDeliveries runs the test with both guarantees.
func inDeliveries(t *testing.T, test func(t *testing.T, o options)) {
	for name, o := range map[string]options{"at_least_once": {}, "exactly_once": {exactlyOnce: true}} {
		o.unread = true
		t.Run(name, func(t *testing.T) { test(t, o) })
	}
}

// TestE2EKilledWhileRegistering kills the connector while it registers a schema: before the
// registry has it, and after, before the answer. Each event comes once and in order, by one
// schema (failure mode 220).
func TestE2EKilledWhileRegistering(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		t.Run(when, func(t *testing.T) {
			inDeliveries(t, func(t *testing.T, o options) {
				s := startSchemas(t)
				subject := s.subject("Order")
				o.config = fmt.Sprintf("encoding:\n  registry: {urls: [%q]}\n  value: {format: avro, subject: record, record: %s, files: {%[2]s: %q}, register: true}\n", s.url, subject, s.file(""))
				w := newWorld(t, o)
				s.holding(when)
				c := w.start()
				for n := range 9 {
					w.placeAs("Placed", []string{"a", "b", "c"}[n%3], n)
				}
				await.Until(t, "a registration under way", func() bool { c.running(); s.mu.Lock(); defer s.mu.Unlock(); return s.held > 0 })
				c.kill()
				s.holding("")
				for n := 9; n < 18; n++ {
					w.placeAs("Placed", []string{"a", "b", "c"}[n%3], n)
				}
				c = startConnector(t, w.config)
				got := w.readNumbers(18)
				c.stop()
				want := map[string][]int64{"a": {0, 3, 6, 9, 12, 15}, "b": {1, 4, 7, 10, 13, 16}, "c": {2, 5, 8, 11, 14, 17}}
				if fmt.Sprint(got.events) != fmt.Sprint(want) {
					t.Errorf("events %v, want %v", got.events, want)
				}
				slices.Sort(s.ids)
				if ids := slices.Compact(s.ids); !slices.Equal(got.schemas, ids) || len(ids) != 1 {
					t.Errorf("records by the schemas %d; registered were %d", got.schemas, ids)
				}
			})
		})
	}
}

// TestE2ERefusedSchemaParksItsKeys has a registry refuse a schema (409, 422): keys with its events
// are parked, others flow, and a retry publishes in order once the registry takes the schema
// (failure mode 221).
func TestE2ERefusedSchemaParksItsKeys(t *testing.T) {
	for _, status := range []int{http.StatusConflict, http.StatusUnprocessableEntity} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			inDeliveries(t, func(t *testing.T, o options) {
				s := startSchemas(t)
				if s.real != "" && status != http.StatusConflict {
					t.Skip("the registry refuses a schema as incompatible alone")
				}
				refusedSchema(t, o, s, status)
			})
		})
	}
}

func refusedSchema(t *testing.T, o options, s *schemas, status int) {
	placed, paid := s.subject("Placed"), s.subject("Paid")
	// A reader of the new schema cannot read what was written by the former: a field without a default.
	s.ask(http.MethodPost, "/subjects/"+paid+"/versions", map[string]string{"schema": numbersSchema("")})
	s.compatible(paid, "BACKWARD")
	s.judge(paid, status)
	o.config = fmt.Sprintf("encoding:\n  missing_schema: bad_event\n  registry: {urls: [%q]}\n  value: {format: avro, subject: record, record: 'shop.%s.${type}', files: {%s: %q, %s: %q}, register: true}\nerrors:\n  on_bad_event: quarantine\n",
		s.url, s.run, placed, s.file(""), paid, s.file(`,{"name":"by","type":"string"}`))
	w := newWorld(t, o)
	pay := func(key string, n int) {
		w.exec(fmt.Sprintf(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', '%s', 'Paid', '{"n":%d,"by":"card"}')`, key, n))
	}
	c := w.start()
	w.placeAs("Placed", "a", 1)
	pay("a", 2)
	w.placeAs("Placed", "a", 3)
	w.placeAs("Placed", "b", 4)
	pay("c", 5)
	w.placeAs("Placed", "b", 6)
	if got := fmt.Sprint(w.readNumbers(3).events); got != "map[a:[1] b:[4 6]]" {
		t.Errorf("events %s", got)
	}
	var l parkedList
	await.Until(t, "parked events", func() bool { c.running(); l = w.parked(); return l.Events == 3 })
	if l.Keys != 2 || l.Listed[0].Reason != "unknown_schema" || !l.Listed[0].Retry {
		t.Errorf("parked %+v", l)
	}
	must.Contain(t, w.wantExit(2, w.config, "quarantine", "retry", "--all", "--yes"), fmt.Sprintf("answers %d", status), "correct", "compatibility of subject "+paid)
	if l := w.parked(); l.Events != 3 {
		t.Errorf("parked %+v after a retry in vain", l)
	}
	s.compatible(paid, "NONE")
	s.judge(paid, 0)
	w.wantExit(0, w.config, "quarantine", "retry", "--all", "--yes")
	w.placeAs("Placed", "a", 7)
	pay("b", 8)
	if got := fmt.Sprint(w.readNumbers(8).events); got != "map[a:[1 2 3 7] b:[4 6 8] c:[5]]" {
		t.Errorf("events %s", got)
	}
	if l := w.parked(); l.Events != 0 {
		t.Errorf("parked %+v", l)
	}
	c.stop()
}
