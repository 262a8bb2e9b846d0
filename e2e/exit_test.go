package e2e

import (
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/must"
)

// TestE2EExitCodes looks at the process as a supervisor does. The code after
// SIGTERM is looked at by every other test.
func TestE2EExitCodes(t *testing.T) {
	t.Run("wrong_password", func(t *testing.T) {
		w := newWorld(t, options{direct: true, unread: true})
		u := must.Get(url.Parse(w.url))(t)
		u.User = url.UserPassword(u.User.Username(), "wrong")
		w.rewriteConfig(w.url, u.String())
		if code := startConnector(t, w.config).wait(); code != 2 {
			t.Errorf("exit code %d, want 2", code)
		}
	})
	t.Run("slot_dropped", func(t *testing.T) {
		w := newWorld(t, options{direct: true, unread: true})
		w.start().stop()
		w.dropSlot(w.slot)
		if code := startConnector(t, w.config).wait(); code != 3 {
			t.Errorf("exit code %d, want 3", code)
		}
	})
}

// rewriteConfig replaces text in the configuration file.
func (w *world) rewriteConfig(from, to string) {
	w.t.Helper()
	text := must.Get(os.ReadFile(w.config))(w.t)
	if !strings.Contains(string(text), from) {
		w.t.Fatalf("the configuration does not have %q", from)
	}
	must.OK(w.t, os.WriteFile(w.config, []byte(strings.Replace(string(text), from, to, 1)), 0o600))
}
