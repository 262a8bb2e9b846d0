package e2e

import (
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// TestE2ESettingsOfOthers has functions in public taking the place of
// PostgreSQL's own for every session without a search path (failure mode 79).
func TestE2ESettingsOfOthers(t *testing.T) {
	w := newWorld(t, options{})
	calls := pgtest.Overload(t, w.url)
	c := w.start()
	load := w.write(seed(t), 8*time.Millisecond, 0)
	load.await(200)
	_, report := w.finish(load, c)
	w.wantNoneAgain(report, "without a reason")
	if n := calls(); n > 0 {
		t.Errorf("the connector called functions of somebody else %d times", n)
	}
}
