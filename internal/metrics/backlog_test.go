package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/must"
)

func TestBacklogExistsOnceItWasLookedAt(t *testing.T) {
	set := New("", "")
	m := set.Pipeline("")
	gather := func() string {
		var b strings.Builder
		families := must.Get(set.Gatherer().Gather())(t)
		for _, f := range families {
			b.WriteString(f.String() + "\n")
		}
		return b.String()
	}
	if strings.Contains(gather(), "unpublished") {
		t.Error("a stream shows a backlog")
	}
	m.Backlog(7, time.Second)
	m.Backlog(8, 1500*time.Millisecond)
	if text := gather(); !strings.Contains(text, `"cdc_outbox_unpublished_rows"`) || !strings.Contains(text, "value:8") || !strings.Contains(text, "value:1.5") {
		t.Errorf("no backlog of 8 rows and 1.5 s in %s", text)
	}
}
