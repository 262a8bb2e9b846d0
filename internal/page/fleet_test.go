package page

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet/placement"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/browser"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
)

// fleetOf is the part of /status about a fleet of five members and a hundred pipelines. The
// third member is this process.
func fleetOf() map[string]any {
	now := time.Now()
	v := fleet.View{Group: "outbox-fleet", Leader: "outbox-0", Decided: now}
	for n := range 5 {
		v.Members = append(v.Members, fleet.MemberView{
			Name: fmt.Sprintf("outbox-%d", n), Rack: "zone-" + string(rune('a'+n%3)), Host: fmt.Sprintf("/10.0.0.%d", n), Version: "v1.4.0",
			Drained: n == 3, File: "0a1b2c3d", Pipelines: 20, Rate: float64(100 * n),
		})
	}
	v.Members[4].File = "99887766"
	v.Members[1].Faults = fleet.Faults{Count: 2, Source: "pipelines.d/acme.yaml", Error: "line 3: unknown key"}
	for n := range 100 {
		v.Pipelines = append(v.Pipelines, fleet.PipelineView{Name: fmt.Sprintf("tenant_%02d", n), Member: fmt.Sprintf("outbox-%d", n%5), Rate: float64(n)})
	}
	v.Pipelines[70].Member, v.Pipelines[70].Waiting = "", "member outbox-3 drains it"
	v.Pipelines[81].Outdated = true
	v.Moves = []fleet.MoveView{
		{Pipeline: "tenant_70", From: "outbox-3", Reason: placement.Drain, Began: now},
		{Pipeline: "tenant_12", From: "outbox-3", To: "outbox-2", Reason: placement.Balance, Began: now.Add(-1500 * time.Millisecond), Placed: now},
	}
	return map[string]any{"group": v.Group, "member": "outbox-2", "joined": true, "leader": v.Leader, "as_of": now, "all": &v}
}

// member is the page of the third member, with its 20 pipelines, one of which is down.
func member(o Options) served {
	set := metrics.New("", "")
	s := served{mux: http.NewServeMux()}
	var all []Pipeline
	for n := 2; n < 100; n += 5 {
		name := fmt.Sprintf("tenant_%02d", n)
		set.Pipeline(name)
		all = append(all, Pipeline{Name: name, Tables: []string{"public.outbox"}, Slot: name, Recent: delivery.NewRecent("eventType", false), Status: func() any {
			reasons := []string{}
			if n == 42 {
				reasons = []string{"the server does not answer"}
			}
			return map[string]any{"ready": n != 42, "ready_since": time.Now(), "reasons": reasons, "remedies": reasons, "role": "active"}
		}})
	}
	s.Page = New(o, "v1.4.0", set.Pipelines())
	s.Show(all)
	s.Register(s.mux)
	return s
}

// Of a fleet the page shows all members and pipelines, with trouble first, in any window.
func TestAFleetIsUsable(t *testing.T) {
	var outside atomic.Bool
	o := DefaultOptions()
	o.Peers = []string{"http://10.0.0.1:8080/"}
	s := member(o)
	s.Fleet(func() any {
		f := fleetOf()
		if outside.Load() {
			f["joined"], f["waiting_for"], f["remedy"] = false, "no answer of the coordinator", "allow Read on the group"
			f["error"] = "connection refused"
		}
		return f
	})
	tab, _ := behind(t, s)
	texts := func(selector string) string {
		return browser.Eval[string](tab, `[...document.querySelectorAll("`+selector+`")].map((e) => e.textContent).join(" ")`)
	}

	says(t, tab, "#fleet-sum", "5 members, 100 pipelines, 1 without a member, 1 with an older specification, 1 member with faulty sources of pipelines, 2 different files")
	says(t, tab, "#fleet h2", "outbox-fleet")
	if got := texts(".card h3"); got != "outbox-0 outbox-1 outbox-2 outbox-3 outbox-4" {
		t.Errorf("the members are %s", got)
	}
	for n, want := range map[int][]string{
		2: {"2 faulty sources of pipelines: pipelines.d/acme.yaml: line 3: unknown key"},
		1: {"leader", "20 pipelines", "zone zone-a", "file 0a1b2c3d"},
		3: {"this process", "200 events/s"},
		4: {"drained"},
		5: {"file 99887766"},
	} {
		for _, text := range want {
			says(t, tab, fmt.Sprintf(".card:nth-child(%d)", n), text)
		}
	}
	if got := browser.Eval[string](tab, `[...document.querySelectorAll(".card a[href]")].map((e) => e.textContent + " " + e.href).join()`); got != "outbox-1 http://10.0.0.1:8080/" {
		t.Errorf("links lead to %s", got)
	}
	// This process knows more of its own pipelines than the coordinator does.
	says(t, tab, "#places > :nth-child(1)", "stands still")
	says(t, tab, "#places > :nth-child(2)", "waits: member outbox-3 drains it")
	says(t, tab, "#places > :nth-child(3)", "placed, older specification")
	if got := texts("#places .name"); !strings.HasPrefix(got, "tenant_42 tenant_70 tenant_81 tenant_00 tenant_01") || strings.Count(got, "tenant") != 100 {
		t.Errorf("the pipelines are %s", got)
	}
	says(t, tab, "#moves > :nth-child(1)", "outbox-3 → –")
	says(t, tab, "#moves > :nth-child(1)", "under way")
	says(t, tab, "#moves > :nth-child(2)", "outbox-3 → outbox-2")
	says(t, tab, "#moves > :nth-child(2)", "1.5 s")
	if got := browser.Eval[int](tab, `document.querySelector("#places").clientHeight`); got > 400 {
		t.Errorf("the pipelines are %d pixels high, want them to scroll", got)
	}
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{375, 900, 1160} {
			tab.Do(chromedp.EmulateViewport(width, 800), emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
			if over := browser.Eval[int](tab, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
				t.Errorf("%d pixels wide, it scrolls sideways by %d", width, over)
			}
		}
	}

	// A member's pipelines by a click, and again all of them; or any by a search.
	tab.Do(chromedp.Click(".card:nth-child(2) button", chromedp.ByQuery))
	says(t, tab, "#fleet-found", "20 of 100 pipelines")
	if got := texts("#places .member"); strings.ReplaceAll(got, "outbox-1", "") != strings.Repeat(" ", 19) {
		t.Errorf("of outbox-1 it shows %s", got)
	}
	tab.Do(chromedp.Click(".card:nth-child(2) button", chromedp.ByQuery))
	await.Until(t, "all pipelines", func() bool { return strings.Count(texts("#places .name"), "tenant") == 100 })
	tab.Do(chromedp.SendKeys("#fleet input", "waits"))
	await.Until(t, "the search for a state", func() bool { return texts("#places .name") == "tenant_70" })

	outside.Store(true)
	says(t, tab, "#fleet-note", "This process is not in the fleet, and runs no pipeline: no answer of the coordinator")
	says(t, tab, "#fleet-note", "allow Read on the group")
	says(t, tab, "#fleet-note", "The coordinator cannot be asked: connection refused")
	s.Show(nil) // its pipelines have ended
	says(t, tab, "#headline", "Not in the fleet")
	says(t, tab, "#subline", "no answer of the coordinator")
	outside.Store(false)
	says(t, tab, "#headline", "No pipeline")
	says(t, tab, "#subline", "Other members of the fleet have them")
	says(t, tab, "#fleet-sum", "5 members")
	if got := tab.Complaints(); len(got) != 0 {
		t.Errorf("the console has %q", got)
	}
}

// Kafka is asked only while a browser looks, by one question at a time, which holds up
// neither samples nor updates.
func TestTheFleetIsLookedAtForViewers(t *testing.T) {
	s := serve(DefaultOptions())
	asked, answer := make(chan struct{}, 10), make(chan string)
	s.Fleet(func() any {
		asked <- struct{}{}
		return <-answer
	})
	began := time.Now()
	after := func(seconds float64) { s.step(began.Add(time.Duration(seconds * float64(time.Second)))) }
	after(3)
	v, _ := s.enter(false, "10.0.0.9")
	if got := string(<-v.updates); strings.Contains(got, `"fleet"`) {
		t.Errorf("nothing is known, and it says %s", got)
	}
	after(6)
	<-asked
	after(9)
	if len(asked) != 0 {
		t.Error("two questions at a time")
	}
	for range 2 {
		if got := string(<-v.updates); strings.Contains(got, `"fleet"`) {
			t.Errorf("without an answer it says %s", got)
		}
	}
	answer <- "first"
	s.looks.Wait()
	for _, want := range []bool{true, false} { // it is sent once
		after(7)
		if got := string(<-v.updates); strings.Contains(got, `"fleet":"first"`) != want {
			t.Errorf("it says %s", got)
		}
	}
	next, _ := s.enter(false, "10.0.0.9")
	if got := string(<-next.updates); !strings.Contains(got, `"fleet":"first"`) {
		t.Errorf("another page begins without the fleet: %s", got)
	}
	s.leave(v)
	s.leave(next)
	after(12)
	if len(asked) != 0 {
		t.Error("a question, or two within two seconds, while nobody looks")
	}
}
