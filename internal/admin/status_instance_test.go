package admin

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// instanceAt answers as a connector reading the slot does.
func instanceAt(t *testing.T, status string) (listen string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, status) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// An undeliverable event holds the slot, invisibly to the servers. The remedy is
// the remedy of the connector's page.
func TestStatusOfAStuckConnector(t *testing.T) {
	const missing = "topic does not exist: outbox.event.order"
	const notReady = `"ready": false, "reasons": ["` + missing + `"], "remedies": ["kafka-topics.sh --create", "free the disk"]`
	const ready = `"ready": true, "reasons": [], "remedies": []`
	for name, tt := range map[string]struct {
		status func(slot string) string
		words  []string // nil: nothing is wrong
	}{
		"says why, and what to do": {func(slot string) string {
			return `{"role": "active", "phase": "replaying", "slot": "` + slot + `", ` + notReady + `}`
		},
			[]string{"events do not get through", missing, "connector    active, replaying, not ready", "-> kafka-topics.sh --create\n", "-> free the disk\n"}},
		"does not read": {func(string) string {
			return `{"role": "failed", "ready": false, "reasons": ["role is failed", "` + missing + `"], "remedies": ["cdc-outbox setup"]}`
		}, []string{missing, "-> cdc-outbox setup\n"}},
		"is one of several": {func(slot string) string {
			return `{"pipelines": {"a": {"role": "active", "phase": "ready", "slot": "` + slot + `", ` + notReady + `},
				"b": {"role": "active", "slot": "other", "ready": false, "reasons": ["PostgreSQL: down"], "remedies": ["start it"]}}}`
		}, []string{missing, "connector    active, not ready", "-> free the disk\n"}},
		"of another slot is not ours": {func(string) string { return `{"role": "active", "slot": "other", ` + notReady + `}` }, nil},
		"is no connector":             {func(string) string { return `<html>` }, nil},
		"is well":                     {func(slot string) string { return `{"role": "active", "slot": "` + slot + `", ` + ready + `}` }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := sound(t)
			f.save()
			f.hold()
			f.HTTP.Listen = instanceAt(t, tt.status(f.Source.Slot))
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
			if strings.Contains(shown, "down") || strings.Contains(shown, "start it") {
				t.Errorf("another pipeline's reason in:\n%s", shown)
			}
		})
	}
}

// Without a connector's answer, a slot that is behind and an old checkpoint tell.
func TestStatusOfASlotThatIsBehind(t *testing.T) {
	was := watched
	watched = 300 * time.Millisecond
	t.Cleanup(func() { watched = was })
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
	if shown := text(t, r); !strings.Contains(shown, "behind, and its last position was confirmed 1h0m0s ago") {
		t.Error(shown)
	}
	f.HTTP.Listen = instanceAt(t, `{"role": "standby", "slot": "`+f.Source.Slot+`", "ready": true}`) // knows nothing of the holder
	if err := Status(f.ctx(), f.Config).Err(); err == nil || failure.ClassOf(err) != failure.Transient {
		t.Errorf("beside a spare that is ready: error %v", err)
	}
	f.Checkpoint.Store = store.StoreNone
	if shown := text(t, Status(f.ctx(), f.Config)); !strings.Contains(shown, "behind, and nothing has been confirmed") {
		t.Errorf("without a checkpoint: %s", shown)
	}
}

// After a quiet time the checkpoint is old, and the first event a moment away from being
// confirmed.
func TestStatusAfterAQuietTime(t *testing.T) {
	f := sound(t)
	cp := f.save()
	cp.SavedAt = time.Now().Add(-time.Hour)
	f.put(cp)
	stream := f.open()
	defer catalog.Close(stream)
	f.insert("order", "1", "{}")
	f.HTTP.Listen = instanceAt(t, `{"role": "standby", "slot": "`+f.Source.Slot+`", "ready": true}`)
	locking := newFixture(t, f.Source.URL.Reveal())
	locking.exec("BEGIN", "LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")
	reported := make(chan *StatusReport, 1)
	go func() { reported <- Status(f.ctx(), f.Config) }()
	pgtest.Await(t, f.conn, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`) // the slot has been read
	for {
		msg := must.Get(stream.Next(f.ctx()))(t)
		if msg.Kind == wal.Commit {
			stream.Confirm(msg.End)
			break
		}
	}
	pgtest.Await(t, f.conn, `SELECT confirmed_flush_lsn > $2::pg_lsn FROM pg_replication_slots WHERE slot_name = $1`, f.Source.Slot, cp.LSN.String())
	locking.exec("ROLLBACK")
	if err := (<-reported).Err(); err != nil {
		t.Errorf("%v", err)
	}
}

// A spare unable to take over is told as such, and not as waiting events.
func TestStatusBesideASpareThatIsNotReady(t *testing.T) {
	f := sound(t)
	f.save()
	f.hold()
	f.HTTP.Listen = instanceAt(t, `{"role": "standby", "slot": "`+f.Source.Slot+`", "ready": false, "reasons": ["no such topic"]}`)
	r := Status(f.ctx(), f.Config)
	if want := "the slot is being read, but the spare that answers here is not ready: no such topic"; r.Verdict != want || failure.ClassOf(r.Err()) != failure.Transient {
		t.Errorf("%s, error %v", r.Verdict, r.Err())
	}
}

// put saves a checkpoint unchanged.
func (f *fixture) put(cp checkpoint.Checkpoint) {
	f.t.Helper()
	opened := must.Get(wiring.OpenStore(f.ctx(), f.Config))(f.t)
	defer opened.Close()
	must.OK(f.t, opened.Save(f.ctx(), cp))
}

// In poll mode the connector says so too.
func TestPollStatusOfAStuckConnector(t *testing.T) {
	f := empty(t)
	f.Source.Mode = config.ModePoll
	f.setup()
	f.HTTP.Listen = instanceAt(t, `{"role": "active", "mode": "poll", "ready": false, "reasons": ["topic does not exist: x"]}`)
	r := Status(f.ctx(), f.Config)
	if shown := text(t, r); r.Err() == nil || !strings.Contains(shown, "topic does not exist: x") {
		t.Errorf("%v:\n%s", r.Err(), shown)
	}
}
