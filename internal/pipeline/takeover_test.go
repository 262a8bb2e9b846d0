package pipeline

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// role is what /status says.
func (r running) role() string {
	answer, err := http.Get(r.base + "/status")
	if err != nil {
		return ""
	}
	defer func() { _ = answer.Body.Close() }()
	body, _ := io.ReadAll(answer.Body)
	var status struct{ Role string }
	_ = json.Unmarshal(body, &status)
	return status.Role
}

// An instance is cut off, another one goes on and publishes. The first one comes
// back as its spare, in the same process, and takes over when the other stops.
func TestInstanceThatWasOvertakenStandsBy(t *testing.T) {
	db := pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, db, `CREATE TABLE outbox (id text PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb)`)
	insert := func(id int) {
		pgtest.Exec(t, db, fmt.Sprintf(`INSERT INTO outbox VALUES ('e%d', 'order', 'o-1', 'Placed', '{"n": %d}')`, id, id))
	}
	published := func(r running, id int) func() bool {
		return func() bool { return strings.Contains(r.stdout.String(), fmt.Sprintf(`\"n\": %d`, id)) }
	}
	line, behindURL := pgtest.Behind(t, db)
	cfg := stdoutConfig(db)
	cfg.Source.Slot = "connector_takeover"
	cfg.Checkpoint.Store, cfg.Checkpoint.Path = store.StoreFile, filepath.Join(t.TempDir(), "checkpoint")
	behind := cfg
	behind.Source.URL = setting.Secret(behindURL)

	first := start(t, behind)
	wait(t, "the first to be active", func() bool { return first.role() == "active" })
	insert(1)
	wait(t, "the first event", published(first, 1))
	line.Refuse(true)
	line.Cut()
	second := start(t, cfg)
	wait(t, "the second to be active", func() bool { return second.role() == "active" })
	insert(2)
	wait(t, "the second event", published(second, 2))
	line.Refuse(false)
	wait(t, "the first to stand by", func() bool { return first.role() == "standby" && code(first.base+"/readyz") == http.StatusOK })
	if err := second.stop(); err != nil {
		t.Errorf("Run = %v for the second", err)
	}
	insert(3)
	wait(t, "the third event", published(first, 3))
	if err := first.stop(); err != nil {
		t.Errorf("Run = %v for the first", err)
	}
	if strings.Contains(first.stdout.String(), `\"n\": 2`) {
		t.Error("the first published again what the second had published")
	}
}
