package admin

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/must"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// instanceAt answers as a connector that reads the slot does.
func instanceAt(t *testing.T, status, ready string) (listen string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, status) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, ready)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// An event that cannot be delivered holds the slot, which the servers do not show.
func TestStatusOfAStuckConnector(t *testing.T) {
	const missing = "topic does not exist: outbox.event.order"
	notReady := `{"ready": false, "reasons": ["` + missing + `"]}`
	for name, tt := range map[string]struct {
		status func(slot string) string
		ready  string
		words  []string // nil: nothing is wrong
	}{
		"says what to do": {func(slot string) string {
			return `{"role": "active", "slot": "` + slot + `", "missing_topics": ["outbox.event.order"]}`
		}, notReady, []string{missing, "-> kafka-topics.sh --bootstrap-server kafka:9092 --create --topic 'outbox.event.order' --partitions 3"}},
		"has its own remedy": {func(string) string { return `{"role": "failed", "remedy": "cdc-outbox setup"}` },
			`{"ready": false, "reasons": ["role is failed", "` + missing + `"]}`, []string{"-> cdc-outbox setup\n"}},
		"says why": {func(slot string) string { return `{"role": "active", "slot": "` + slot + `"}` }, notReady,
			[]string{"events do not get through", missing, "connector    active, not ready", "-> see the `remedy` in its log"}},
		"is one of several": {func(slot string) string {
			return `{"pipelines": {"a": {"role": "active", "slot": "` + slot + `"}, "b": {"role": "active", "slot": "other"}}}`
		}, `{"ready": false, "reasons": ["pipeline b: PostgreSQL: down", "pipeline a: ` + missing + `"]}`,
			[]string{missing, "connector    active, not ready"}},
		"of another slot is not ours": {func(string) string { return `{"role": "active", "slot": "other"}` }, notReady, nil},
		"is no connector":             {func(string) string { return `<html>` }, notReady, nil},
		"is well":                     {func(slot string) string { return `{"role": "active", "slot": "` + slot + `"}` }, `{"ready": true, "reasons": []}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := sound(t)
			f.save()
			f.hold()
			f.Sink = config.Sink{Kafka: sink.DefaultOptions()}
			f.Sink.Kafka.Brokers = []string{"kafka:9092"}
			f.HTTP.Listen = instanceAt(t, tt.status(f.Source.Slot), tt.ready)
			r := Status(f.ctx(), f.Config)
			err, shown := r.Err(), text(t, r)
			if tt.words == nil {
				if err != nil || !strings.HasPrefix(shown, "the slot is being read\n") || strings.Contains(shown, missing) {
					t.Errorf("%v:\n%s", err, shown)
				}
				return
			}
			if err == nil || failure.ClassOf(err) != failure.Transient {
				t.Errorf("error %v", err)
			}
			must.Contain(t, shown, tt.words...)
			if strings.Contains(shown, "down") {
				t.Errorf("another pipeline's reason in:\n%s", shown)
			}
		})
	}
}

// Where no connector answers, a slot that is behind and an old checkpoint tell.
func TestStatusOfASlotThatIsBehind(t *testing.T) {
	f := sound(t)
	cp := f.save()
	f.hold()
	f.insert("order", "1", "{}")
	if err := Status(f.ctx(), f.Config).Err(); err != nil {
		t.Errorf("a checkpoint that was just saved: %v", err)
	}
	cp.SavedAt = time.Now().Add(-time.Hour)
	f.put(cp)
	r := Status(f.ctx(), f.Config)
	if err := r.Err(); err == nil || failure.ClassOf(err) != failure.Transient {
		t.Errorf("error %v", err)
	}
	if shown := text(t, r); !strings.Contains(shown, "behind, and nothing has been confirmed for 1h0m0s") {
		t.Error(shown)
	}
}

// put saves a checkpoint as it is.
func (f *fixture) put(cp checkpoint.Checkpoint) {
	f.t.Helper()
	store := must.Get(wiring.OpenStore(f.ctx(), f.Config))(f.t)
	defer store.Close()
	must.OK(f.t, store.Save(f.ctx(), cp))
}

// In poll mode the connector says so too.
func TestPollStatusOfAStuckConnector(t *testing.T) {
	f := empty(t)
	f.Source.Mode = config.ModePoll
	f.setup()
	f.HTTP.Listen = instanceAt(t, `{"role": "active", "mode": "poll"}`, `{"ready": false, "reasons": ["topic does not exist: x"]}`)
	r := Status(f.ctx(), f.Config)
	if shown := text(t, r); r.Err() == nil || !strings.Contains(shown, "topic does not exist: x") {
		t.Errorf("%v:\n%s", r.Err(), shown)
	}
}
