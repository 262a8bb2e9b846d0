package page

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/browser"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
)

// Of a hundred pipelines, those in trouble come first, with a few reasons and remedies; the
// others are a list to search.
func TestAHundredPipelinesAreUsable(t *testing.T) {
	var broken atomic.Int32 // so many pipelines, the last ones
	began, set := time.Now(), metrics.New("", "")
	s := served{mux: http.NewServeMux()}
	var all []Pipeline
	for n := range 100 {
		name := fmt.Sprintf("p%02d", n)
		set.Pipeline(name)
		all = append(all, Pipeline{Name: name, Tables: []string{"public.outbox"}, Slot: name, Recent: delivery.NewRecent("eventType", false), Status: func() any {
			ready := n < 100-int(broken.Load())
			reasons := []string{}
			if !ready {
				reasons = []string{"the slot of " + name + " is lost"}
			}
			since := began
			if n == 99 { // the longest
				since = began.Add(-time.Minute)
			}
			return map[string]any{"ready": ready, "ready_since": since, "reasons": reasons, "remedies": reasons, "role": "active"}
		}})
	}
	s.Page = New(Options{Events: EventsAlways}, "v1", set.Pipelines())
	s.Show(all)
	s.Register(s.mux)
	tab, _ := behind(t, s)
	names := func() string {
		return browser.Eval[string](tab, `[...document.querySelectorAll("#pipeline-list strong")].map((e) => e.textContent).join(" ")`)
	}

	says(t, tab, "#headline", "All 100 pipelines are well")
	says(t, tab, "#tally", "100 pipelines: 100 × flows")
	if got := browser.Eval[int](tab, `document.querySelector("#pipeline-list").clientHeight`); got > 400 {
		t.Errorf("the list is %d pixels high, want it to scroll", got)
	}
	if got := browser.Eval[int](tab, `document.querySelectorAll("#instances li").length`); got != 1 {
		t.Errorf("%d instances, want the selected pipeline's", got)
	}

	broken.Store(6)
	says(t, tab, "#headline", "p99, p94, p95 and 3 more stand still; 94 of 100 pipelines are well")
	says(t, tab, "#tally", "6 × stands still, 94 × flows")
	says(t, tab, "#untold", "3 more")
	if got := browser.Eval[int](tab, `document.querySelectorAll(".trouble").length`); got != mostTold {
		t.Errorf("%d troubles are told", got)
	}
	if got := names(); !strings.HasPrefix(got, "p99 p94 p95 p96 p97 p98 p00 p01") {
		t.Errorf("the order is %s", got)
	}

	search := func(text string) {
		tab.Do(chromedp.Evaluate(`document.querySelector("#search").value = ""`, nil), chromedp.KeyEvent(text))
	}
	tab.Do(chromedp.KeyEvent("/")) // moves the focus; chromedp types the character, too
	search("p4")
	await.Until(t, "the search", func() bool { return names() == "p40 p41 p42 p43 p44 p45 p46 p47 p48 p49" })
	says(t, tab, "#tally", "10 of 100 pipelines")
	tab.Do(chromedp.Click(`#pipeline-list button:nth-child(3)`, chromedp.ByQuery))
	await.Until(t, "the choice", func() bool {
		return browser.Eval[string](tab, `document.querySelector('#pipeline-list [aria-pressed="true"] strong')?.textContent || ""`) == "p42"
	})
	says(t, tab, "#flow", "p42")
	tab.Do(chromedp.Focus("#search", chromedp.ByQuery))
	search("stands")
	await.Until(t, "the search for a state", func() bool { return names() == "p99 p94 p95 p96 p97 p98" })
}

// mostTold is the script's.
const mostTold = 3
