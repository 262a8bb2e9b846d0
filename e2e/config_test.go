package e2e

import (
	"os"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// rewriteConfig replaces text in the configuration file.
func (w *world) rewriteConfig(from, to string) {
	w.t.Helper()
	text := must.Get(os.ReadFile(w.config))(w.t)
	if !strings.Contains(string(text), from) {
		w.t.Fatalf("the configuration does not have %q", from)
	}
	must.OK(w.t, os.WriteFile(w.config, []byte(strings.Replace(string(text), from, to, 1)), 0o600))
}
