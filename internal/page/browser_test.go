package page_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/browser"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// shows waits until the element's text contains all texts.
func shows(t *testing.T, tab *browser.Tab, selector string, texts ...string) {
	t.Helper()
	last := ""
	defer func() {
		if t.Failed() {
			t.Logf("%s shows %q; console: %q", selector, last, tab.Complaints())
		}
	}()
	for _, text := range texts {
		await.Until(t, fmt.Sprintf("%s to show %q", selector, text), func() bool {
			last = tab.Text(selector)
			return strings.Contains(last, text)
		})
	}
}

// TestE2EPageShowsWhatStatusSays compares the page with /status and /metrics,
// through a life with events, a bad event, and an outage.
func TestE2EPageShowsWhatStatusSays(t *testing.T) {
	tab := browser.Open(t) // before anything is started in vain
	server := pgtest.Start(t)
	db, broker := server.NewDatabase(t), kafkatest.Start(t)
	c := start(t, configure(t, db, broker, "outbox"))
	c.awaitReady(t)
	tab.Do(chromedp.EmulateViewport(1160, 1000), chromedp.Navigate(c.base))

	shows(t, tab, "#contact", "live")
	shows(t, tab, "#headline", "All is well, and quiet")
	shows(t, tab, "#no-events", "None yet")
	write(t, db, "outbox", "order", 12)
	pgtest.Exec(t, db, `INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('no topic?', '77', 'OrderLost', '{"secret": 1}')`)

	// Events, with their places, and the bad event with the reason.
	await.Until(t, "the events", func() bool { return browser.Eval[int](tab, `document.querySelectorAll("#event-list .key").length`) > 0 })
	shows(t, tab, "#event-list > :first-child", "OrderShipped", "1046", "outbox.event.order / ", " @ ")
	shows(t, tab, "#dead-list", "illegal_topic", "77", "public.outbox")
	shows(t, tab, "#dead-count", "1")
	for _, path := range []string{"/live", "/"} {
		if text := first(t, c, path); strings.Contains(text, "secret") || strings.Contains(text, "total\\\"") {
			t.Errorf("%s hands out payloads, although http.payloads is off", path)
		}
	}

	// While events come, the picture moves.
	stop := writer(t, db, trickle("outbox", "order"))
	await.Until(t, "the picture to move", func() bool {
		return browser.Eval[int](tab, `document.querySelectorAll('.link[data-pace="slow"], .link[data-pace="brisk"], .link[data-pace="fast"]').length`) == 3
	})
	stop()

	// The picture's texts are those of /status and /metrics.
	await.Until(t, "the picture to say what /status says", func() bool {
		s := c.status(t, "")
		if s["server_lsn"] == nil {
			return false // the slot has not been looked at yet
		}
		return strings.Contains(tab.Text(`[data-node="tables"]`), s["server_lsn"].(string)) &&
			strings.Contains(tab.Text(`[data-node="slot"]`), s["wal_status"].(string)) &&
			strings.Contains(tab.Text(`[data-node="connector"]`), s["role"].(string)) &&
			strings.Contains(tab.Text(`[data-node="topics"]`), fmt.Sprintf("outbox.event.order\n%s", published(t, c)))
	})
	for selector, want := range map[string]string{
		`[data-node="tables"]`: "public.outbox", `[data-node="slot"]`: "page_outbox", `[data-node="topics"]`: broker.Brokers[0],
		`[data-node="connector"]`: "published\n" + published(t, c), "#instance": "v1.4.0", "#instances": "this instance",
		`[data-link="written"]`: "transactions/s", `[data-link="read"]`: "of log", `[data-link="sent"]`: "events/s",
	} {
		shows(t, tab, selector, want)
	}
	for _, name := range []string{"Events per second", "Lag", "Commit to acknowledgement", "Log kept by the slot", "Log not confirmed", "In flight"} {
		await.Until(t, "the line of "+name, func() bool {
			return browser.Eval[int](tab, fmt.Sprintf(`document.querySelector("[data-chart='%s'] .line").getAttribute("d").length`, name)) > 10
		})
	}

	// No window is too narrow, light or dark.
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{375, 900, 1160} {
			tab.Do(chromedp.EmulateViewport(width, 800), emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
			if over := browser.Eval[int](tab, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
				t.Errorf("%d pixels wide, it scrolls sideways by %d", width, over)
			}
		}
		want := map[string]string{"light": "rgb(246, 247, 245)", "dark": "rgb(16, 21, 20)"}[scheme]
		if got := browser.Eval[string](tab, `getComputedStyle(document.body).backgroundColor`); got != want {
			t.Errorf("in the %s the ground is %s", scheme, got)
		}
	}
	tab.Do(chromedp.EmulateViewport(1160, 1000))

	// Keys.
	tab.Do(chromedp.KeyEvent("r"))
	shows(t, tab, "#range-name", "hour")
	tab.Do(chromedp.KeyEvent("p"))
	shows(t, tab, "#pause", "go on")
	tab.Do(chromedp.KeyEvent("p"), chromedp.KeyEvent("t"))
	if got := browser.Eval[string](tab, `document.documentElement.dataset.theme`); got != "light" {
		t.Errorf("the key T leads to %q from the dark", got)
	}

	// An outage shows with place, reason and remedy, until the end.
	broker.Stop(t)
	write(t, db, "outbox", "order", 1)
	await.Until(t, "the outage in the picture", func() bool {
		return browser.Eval[string](tab, `document.querySelector('[data-link="sent"]').dataset.state`) != "good"
	})
	shows(t, tab, "#headline", "Standing still for")
	shows(t, tab, "#subline", "since")
	shows(t, tab, ".reasons", "no broker has answered for")
	await.Until(t, "the remedies of /status", func() bool {
		remedies := c.status(t, "")["remedies"].([]any)
		return len(remedies) > 0 && strings.Contains(plain(tab.Text(".remedies")), plain(remedies[0].(string)))
	})
	shows(t, tab, ".remedies", "cdc-outbox check -c outbox.yaml")
	if title := browser.Eval[string](tab, `document.title`); !strings.HasPrefix(title, "✕") {
		t.Errorf("the title is %q", title)
	}
	broker.Resume(t)
	await.Until(t, "the picture to be whole", func() bool {
		return browser.Eval[string](tab, `document.querySelector('[data-link="sent"]').dataset.state`) == "good" &&
			browser.Eval[string](tab, `document.querySelector('#verdict').dataset.state`) == "good"
	})
	if got := tab.Text("#troubles"); got != "" {
		t.Errorf("after the outage it still shows %q", got)
	}
	if got := tab.Complaints(); len(got) != 0 {
		t.Errorf("the console has %q", got)
	}

	// A stopped connector is no state of the events.
	c.stop()
	shows(t, tab, "#headline", "The connector does not answer")
	shows(t, tab, "#contact", "no answer for")
}

// published is the number of events in /metrics, in the page's form.
func published(t *testing.T, c connector) string {
	t.Helper()
	for line := range strings.Lines(string(c.get(t, "/metrics"))) {
		if n, ok := strings.CutPrefix(line, `cdc_outbox_events_published_total{topic="outbox.event.order"} `); ok {
			if n = strings.TrimSpace(n); len(n) > 3 {
				return n[:len(n)-3] + "," + n[len(n)-3:]
			}
			return n
		}
	}
	return "none"
}

// plain is a text without the marks of commands, and without the words on buttons.
func plain(text string) string {
	return strings.Join(strings.Fields(strings.NewReplacer("`", "", "copy", "").Replace(text)), " ")
}

// first returns the beginning of an answer.
func first(t *testing.T, c connector, path string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(c.base + path)
	must.OK(t, err)
	defer answer.Body.Close()
	text := make([]byte, 1<<20)
	n, updates := 0, 0
	for updates < 2 { // of /live: the first message, and the known events
		more, err := answer.Body.Read(text[n:])
		n += more
		updates = strings.Count(string(text[:n]), "\n\n")
		if err == io.EOF {
			break
		}
		must.OK(t, err)
	}
	return string(text[:n])
}

func TestE2EPageOfSeveralPipelines(t *testing.T) {
	tab := browser.Open(t)
	server := pgtest.Start(t)
	db, broker := server.NewDatabase(t), kafkatest.Start(t)
	var cfg config.Config
	for _, name := range []string{"orders", "payments"} {
		own := configure(t, db, broker, name)
		cfg.Pipelines = append(cfg.Pipelines, config.Pipeline{Name: name, Config: &own})
		cfg.HTTP = own.HTTP
	}
	cfg.HTTP.Peers = []string{"http://127.0.0.1:1/"}
	c := start(t, cfg)
	c.awaitReady(t)
	write(t, db, "payments", "payment", 3)
	tab.Do(chromedp.EmulateViewport(375, 800), chromedp.Navigate(c.base))
	shows(t, tab, "#headline", "All 2 pipelines are well")
	tab.Do(chromedp.KeyEvent("2"))
	shows(t, tab, `[data-node="slot"]`, "page_payments")
	shows(t, tab, "#event-list", "OrderShipped", "1044")
	shows(t, tab, "#instances", "http://127.0.0.1:1/")

	tab.Do(chromedp.Reload()) // nothing is chosen now
	lose(t, db, c, "payments")
	shows(t, tab, "#headline", "payments stands still; 1 of 2 pipelines is well")
	shows(t, tab, ".trouble", "slot \"page_payments\"", "cdc-outbox setup -c outbox.yaml --pipeline payments --accept-gap")
	shows(t, tab, `[data-pipeline="payments"]`, "stands still for")
	shows(t, tab, `[data-node="slot"]`, "page_payments", "lost")
	if over := browser.Eval[int](tab, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
		t.Errorf("with the loss it scrolls sideways by %d", over)
	}
	if got := tab.Complaints(); len(got) != 0 {
		t.Errorf("the console has %q", got)
	}
}

// Two processes share two pipelines, as the pages of both tell; one leaves.
func TestE2EPageOfAFleet(t *testing.T) {
	tab := browser.Open(t)
	server := pgtest.Start(t)
	db, broker := server.NewDatabase(t), kafkatest.Start(t)
	member := func(name string) connector {
		cfg := config.Config{Fleet: fleet.DefaultOptions()}
		cfg.Fleet.Group, cfg.Fleet.Member = "page", name
		for _, name := range []string{"orders", "payments"} {
			own := configure(t, db, broker, name)
			cfg.Pipelines = append(cfg.Pipelines, config.Pipeline{Name: name, Config: &own})
			cfg.HTTP, cfg.Sink = own.HTTP, own.Sink
		}
		return start(t, cfg)
	}
	first := member("outbox-a")
	tab.Do(chromedp.EmulateViewport(1160, 1000), chromedp.Navigate(first.base))
	shows(t, tab, "#fleet-sum", "1 member, 2 pipelines")
	second := member("outbox-b")
	shows(t, tab, "#fleet-sum", "2 members, 2 pipelines")
	shows(t, tab, "#moves", "outbox-a → outbox-b", "load")
	for name, c := range map[string]connector{"outbox-a": first, "outbox-b": second} {
		tab.Do(chromedp.Navigate(c.base))
		shows(t, tab, "#headline", "All is well")
		shows(t, tab, "#members", name+"\n\nthis process", "1 pipeline")
		shows(t, tab, "#places", "outbox-a", "outbox-b", "flows", "placed")
	}
	first.stop()
	tab.Do(chromedp.Navigate(second.base))
	shows(t, tab, "#fleet-sum", "1 member, 2 pipelines")
	await.Until(t, "both pipelines at the other member", func() bool {
		return strings.Count(tab.Text("#places"), "outbox-b") == 2
	})
	shows(t, tab, "#headline", "All 2 pipelines are well")
	if got := tab.Complaints(); len(got) != 0 {
		t.Errorf("the console has %q", got)
	}
}

func TestE2EPageOfAStandbyAndToken(t *testing.T) {
	tab := browser.Open(t)
	server := pgtest.Start(t)
	db, broker := server.NewDatabase(t), kafkatest.Start(t)
	cfg := configure(t, db, broker, "outbox")
	cfg.HTTP.Token = "0123456789abcdef"
	c := start(t, cfg)
	c.awaitReady(t)
	write(t, db, "outbox", "order", 3)
	tab.Do(chromedp.EmulateViewport(1160, 1000), chromedp.Navigate(c.base))
	shows(t, tab, "#why", "those who know the token")
	shows(t, tab, `[data-node="connector"]`, "published\n3")
	if got := browser.Eval[int](tab, `document.querySelector("#event-list").children.length`); got != 0 || strings.Contains(first(t, c, "/live"), "OrderPlaced") {
		t.Errorf("%d events are shown without the token", got)
	}
	tab.Do(chromedp.SendKeys("#token", "0123456789abcdef\r"))
	shows(t, tab, "#event-list", "OrderShipped", "1044")

	spare := start(t, configure(t, db, broker, "outbox"))
	await.Until(t, "the standby to know the holder", func() bool { return spare.status(t, "")["holder"] != nil })
	tab.Do(chromedp.Navigate(spare.base))
	shows(t, tab, "#headline", "Standing by")
	holder := spare.status(t, "")["holder"].(map[string]any)
	shows(t, tab, "#subline", fmt.Sprintf("pid %.0f", holder["pid"]))
	shows(t, tab, "#instances", "holder", "standby")

	var standbys []any
	await.Until(t, "the holder to know the standby", func() bool {
		standbys, _ = c.status(t, "")["standbys"].([]any)
		return len(standbys) == 1
	})
	tab.Do(chromedp.Navigate(c.base))
	shows(t, tab, "#instances", "standby", fmt.Sprintf("pid %.0f", standbys[0].(map[string]any)["pid"]))
	if got := tab.Complaints(); len(got) != 0 {
		t.Errorf("the console has %q", got)
	}
}

// TestE2EPageOfAStandbyServer is about a standby: while the server is away, and
// with a copy of the slot.
func TestE2EPageOfAStandbyServer(t *testing.T) {
	tab := browser.Open(t)
	pair := pgtest.StartPair(t)
	standby := must.Get(url.Parse(pair.Standby.URL("postgres")))(t).Host
	db, broker := pair.Primary.NewDatabase(t), kafkatest.Start(t)
	cfg := configure(t, db, broker, "outbox")
	cfg.Source.Standbys = []string{standby}
	pair.Standby.Stop(t, pgtest.Fast)
	c := start(t, cfg)
	tab.Do(chromedp.EmulateViewport(1160, 1000), chromedp.Navigate(c.base))
	shows(t, tab, "#instances", "failover", standby+" cannot be asked for its copy of the slot")

	pair.Standby.Resume(t)
	await.Until(t, "a copy of the slot", func() bool {
		pair.Primary.Exec(t, "SELECT pg_log_standby_snapshot()") // a temporary copy waits for it
		return strings.Contains(tab.Text("#instances"), standby+" has a copy of the slot, ")
	})
	var said []any
	await.Until(t, "the words of /status", func() bool {
		said, _ = c.status(t, "")["failover"].([]any)
		return len(said) == 2 && strings.Contains(tab.Text("#instances"), said[1].(map[string]any)["text"].(string))
	})
	if primary := said[0].(map[string]any)["host"].(string); strings.Contains(tab.Text("#instances"), primary) {
		t.Errorf("the slot's own server is among %q", tab.Text("#instances"))
	}
	if got := tab.Complaints(); len(got) != 0 {
		t.Errorf("the console has %q", got)
	}
}
