package page

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/browser"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Effects of a proxy between a browser and the page on a request for /live.
const (
	passes = iota
	refuses
	hangs // the connection stays, and nothing comes
)

// behind serves a page through the proxy of fate, and opens the page in a browser.
func behind(t *testing.T, s served) (tab *browser.Tab, fate *atomic.Int32) {
	t.Helper()
	tab, fate = browser.Open(t), new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/live" {
			switch fate.Load() {
			case refuses:
				http.Error(w, "Too many pages are open.", http.StatusServiceUnavailable)
				return
			case hangs:
				must.OK(t, http.NewResponseController(w).Flush())
				<-r.Context().Done()
				return
			}
		}
		s.mux.ServeHTTP(w, r)
	}))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		s.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ran
		server.CloseClientConnections()
		server.Close()
	})
	tab.Do(chromedp.EmulateViewport(1160, 1000), chromedp.Navigate(server.URL))
	return tab, fate
}

func says(t *testing.T, tab *browser.Tab, selector, text string) {
	t.Helper()
	await.Until(t, selector+" to say "+text, func() bool { return strings.Contains(tab.Text(selector), text) })
}

// hide makes the page believe that it is hidden, or shown again.
func hide(tab *browser.Tab, hidden string) {
	tab.Do(chromedp.Evaluate(`Object.defineProperty(document, "hidden", {value: `+hidden+`, configurable: true});
		document.dispatchEvent(new Event("visibilitychange"))`, nil))
}

// pause lets the page's clock strike some times.
func pause(t *testing.T, tab *browser.Tab) {
	t.Helper()
	tab.Do(chromedp.Evaluate(`window.strokes = 0; setInterval(() => window.strokes++, 1000); 0`, nil))
	await.Until(t, "some seconds of the page", func() bool { return browser.Eval[int](tab, `window.strokes`) > 2 })
}

// A proxy that forgot the connection, or a laptop that slept, must not leave the
// page deaf.
func TestE2EPageLeavesADeadConnection(t *testing.T) {
	tab, fate := behind(t, serve(DefaultOptions()))
	says(t, tab, "#contact", "live")
	// Screen readers hear changes, and not each second.
	heard := func() []string { return browser.Eval[[]string](tab, `window.heard`) }
	tab.Do(chromedp.Evaluate(`{ window.heard = [];
		for (const e of document.querySelectorAll("[aria-live], [role=status], [role=alert]"))
			new MutationObserver(() => window.heard.push(e.textContent)).observe(e, {childList: true, characterData: true, subtree: true}); 0 }`, nil))
	pause(t, tab)
	if got := heard(); len(got) != 0 {
		t.Errorf("while all is well one hears %q", got)
	}
	fate.Store(hangs)
	hide(tab, "true")
	hide(tab, "false")
	says(t, tab, "#contact", "no answer for")
	pause(t, tab)
	if got := heard(); len(got) != 1 || got[0] != "The connector does not answer." {
		t.Errorf("of the silence one hears %q", got)
	}
	says(t, tab, "#headline", "The connector does not answer")
	fate.Store(passes)
	says(t, tab, "#contact", "live")
	says(t, tab, "#headline", "All is well")
}

// The reason of a refusal is shown; and a page hidden and shown again meanwhile has
// a single connection in the end.
func TestE2EPageThatIsRefused(t *testing.T) {
	s := serve(DefaultOptions())
	tab, fate := behind(t, s)
	says(t, tab, "#contact", "live")
	fate.Store(refuses)
	for range 5 {
		hide(tab, "true")
		hide(tab, "false")
		says(t, tab, "#subline", "Too many pages are open.")
	}
	fate.Store(passes)
	says(t, tab, "#contact", "live")
	pause(t, tab)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.viewers); n != 1 {
		t.Errorf("one page has %d connections", n)
	}
}

// A page nobody sees asks for nothing, so it knows of no outage.
func TestE2EHiddenPageRaisesNoAlarm(t *testing.T) {
	tab, _ := behind(t, serve(DefaultOptions()))
	says(t, tab, "#contact", "live")
	hide(tab, "true")
	tab.Do(chromedp.Evaluate(`{ const now = Date.now; Date.now = () => now() + 3600_000; 0 }`, nil))
	pause(t, tab)
	if title, contact := browser.Eval[string](tab, `document.title`), tab.Text("#contact"); title != "cdc-outbox" || contact != "asleep" {
		t.Errorf("hidden for an hour it is titled %q and says %q", title, contact)
	}
	hide(tab, "false")
	says(t, tab, "#contact", "live")
}

// A wrong token is named as such, and forgotten: a token that fits no header would
// keep the page from asking at all.
func TestE2EPageNamesAWrongToken(t *testing.T) {
	o := DefaultOptions()
	o.Token = "0123456789abcdef"
	tab, _ := behind(t, serve(o))
	says(t, tab, "#why", "those who know the token")
	for _, wrong := range []string{"0123456789abcdeF", "\u201c0123456789abcdef\u201d"} {
		tab.Do(chromedp.Evaluate(`document.querySelector("#wrong").textContent = ""`, nil), chromedp.SendKeys("#token", wrong+"\r"))
		says(t, tab, "#wrong", "That is not the token.")
		says(t, tab, "#contact", "live")
	}
	tab.Do(chromedp.SendKeys("#token", "0123456789abcdef\r"))
	await.Until(t, "the page to ask for no token", func() bool { return browser.Eval[bool](tab, `document.querySelector("#login").hidden`) })
	if got := tab.Text("#wrong"); got != "" {
		t.Errorf("with the token it says %q", got)
	}
}

// A slot is called lost where events may be lost, not for an error with the word.
func TestE2EPageCallsNoSlotLostByAWord(t *testing.T) {
	s := serve(DefaultOptions())
	var loss atomic.Bool
	s.shown[0].Status = func() any {
		return map[string]any{"ready": false, "ready_since": time.Now(), "reasons": []string{"all replication slots are in use"}, "remedies": []string{},
			"role": "failed", "error": "all replication slots are in use", "loss": loss.Load()}
	}
	tab, _ := behind(t, s)
	says(t, tab, "#headline", "Standing still")
	if got := tab.Text(`[data-node="slot"]`); strings.Contains(got, "lost") {
		t.Errorf("of a setting it says %q", got)
	}
	loss.Store(true)
	says(t, tab, `[data-node="slot"]`, "lost")
}
