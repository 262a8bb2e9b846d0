package catchup

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// usual is a look at a slot at confirmed, in a log that ends at end.
func usual(end, confirmed Position, active bool) Look {
	return Look{System: "7", Database: "shop", Timeline: "00000001", End: end,
		Slot: &SlotLook{Confirmed: confirmed, Active: active, Type: "logical", Database: "shop"}}
}

// but is the look with a difference.
func (l Look) but(differs func(*Look)) Look {
	slot := *l.Slot
	l.Slot = &slot
	differs(&l)
	return l
}

func TestWait(t *testing.T) {
	const never = failure.Class(99) // no error
	for name, c := range map[string]struct {
		target  Position
		looks   []Look
		reached bool // at the last look; at the ones before nothing happens
		class   failure.Class
		words   string
	}{
		"an idle slot":                     {0, []Look{usual(100, 100, true)}, true, never, ""},
		"a slot behind":                    {0, []Look{usual(100, 99, true)}, false, never, ""},
		"a slot that catches up":           {0, []Look{usual(100, 90, true), usual(200, 99, true), usual(300, 100, true)}, true, never, ""},
		"a position before":                {50, []Look{usual(100, 60, true)}, true, never, ""},
		"a position beyond":                {101, []Look{usual(100, 100, true)}, false, failure.Config, "beyond the end"},
		"nobody reads, all was confirmed":  {0, []Look{usual(100, 100, false)}, true, never, ""},
		"nobody reads":                     {0, []Look{usual(100, 90, false), usual(200, 90, false)}, false, never, ""},
		"a reader comes":                   {0, []Look{usual(100, 90, false), usual(200, 90, true), usual(200, 110, true)}, true, never, ""},
		"moved while nobody reads":         {0, []Look{usual(100, 90, false), usual(200, 110, false)}, false, failure.Loss, "moved by hand"},
		"moved on a little, likewise":      {0, []Look{usual(100, 80, false), usual(200, 90, false)}, false, failure.Loss, "moved by hand"},
		"made anew as its reader left":     {0, []Look{usual(100, 90, true), usual(200, 110, false)}, false, never, ""},
		"being created":                    {0, []Look{usual(100, 0, true)}, false, never, ""},
		"no slot":                          {0, []Look{usual(100, 0, true).but(func(l *Look) { l.Slot = nil })}, false, failure.Loss, "does not exist"},
		"dropped":                          {0, []Look{usual(100, 90, true), usual(100, 90, true).but(func(l *Look) { l.Slot = nil })}, false, failure.Loss, "was dropped"},
		"lost":                             {0, []Look{usual(100, 100, true).but(func(l *Look) { l.Slot.WALStatus = "lost" })}, false, failure.Loss, "is lost"},
		"invalidated":                      {0, []Look{usual(100, 100, true).but(func(l *Look) { l.Slot.Invalid = "idle_timeout" })}, false, failure.Loss, "idle_timeout"},
		"of another database":              {0, []Look{usual(100, 100, true).but(func(l *Look) { l.Slot.Database = "other" })}, false, failure.Config, `"other"`},
		"a physical slot":                  {0, []Look{usual(100, 100, true).but(func(l *Look) { l.Slot.Type = "physical" })}, false, failure.Config, "physical"},
		"a standby":                        {0, []Look{usual(100, 100, true).but(func(l *Look) { l.Timeline = "" })}, false, failure.Config, "standby"},
		"a standby in between":             {0, []Look{usual(100, 90, true), usual(100, 100, true).but(func(l *Look) { l.Timeline = "" })}, false, failure.Transient, "standby"},
		"another server":                   {0, []Look{usual(100, 90, true), usual(100, 100, true).but(func(l *Look) { l.System = "8" })}, false, failure.Loss, "another server"},
		"another database":                 {0, []Look{usual(100, 90, true), usual(100, 100, true).but(func(l *Look) { l.Database = "b" })}, false, failure.Loss, "another database"},
		"a failover":                       {0, []Look{usual(100, 90, true), usual(100, 100, true).but(func(l *Look) { l.Timeline = "00000002" })}, false, failure.Loss, "timeline"},
		"the log goes back":                {0, []Look{usual(100, 90, true), usual(95, 95, true)}, false, failure.Loss, "set back"},
		"the confirmed position goes back": {0, []Look{usual(100, 90, true), usual(100, 80, true)}, false, never, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := Wait{Slot: "s", Target: c.target}
			for n, look := range c.looks {
				reached, err := w.Take(look)
				last := n == len(c.looks)-1
				if reached != (last && c.reached) {
					t.Errorf("look %d: reached is %t", n, reached)
				}
				if err == nil != (!last || c.class == never) {
					t.Fatalf("look %d: %v", n, err)
				}
				if err != nil && (failure.ClassOf(err) != c.class || !strings.Contains(err.Error(), c.words) || failure.RemedyOf(err) == "") {
					t.Errorf("look %d: %v, remedy %q", n, err, failure.RemedyOf(err))
				}
			}
		})
	}
}

func TestWaitIsForTheEndAtItsBeginning(t *testing.T) {
	w := Wait{Slot: "s"}
	for _, end := range []Position{100, 200} {
		if _, err := w.Take(usual(end, 90, true)); err != nil || w.Target != 100 || w.Behind() != 10 {
			t.Errorf("the log ends at %d: the target is %d, %d behind: %v", end, w.Target, w.Behind(), err)
		}
	}
}

func TestParse(t *testing.T) {
	l, err := Parse([]byte(`{"system": "7", "end": "23762760", "timeline": null, "slot": {"confirmed": null, "active": true, "slot_type": "logical"}}`))
	if err != nil || l.End.String() != "0/16A9748" || l.Timeline != "" || l.Slot.Confirmed != 0 || !l.Slot.Active {
		t.Errorf("%+v, %v", l, err)
	}
	for _, bad := range []string{"", "{", `{"end": 5}`, `{"end": "-5"}`} {
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%q is an answer", bad)
		}
	}
}

// polledTable answers a Polled's statements as a table of keys would.
type polledTable map[string]bool // unpublished, by key

// drain asks until all is published, and publishes publish between two answers.
func (rows polledTable) drain(t *testing.T, p *Polled, publish func(question int)) {
	t.Helper()
	for question := range 1000 {
		_, args := p.Statement()
		published, _, err := p.Take(rows.answer(p, args))
		if err != nil {
			t.Fatal(err)
		}
		if published {
			return
		}
		publish(question)
	}
	t.Fatal("the wait has no end")
}

func (rows polledTable) answer(p *Polled, args []any) []byte {
	after := ""
	if len(args) > 0 {
		after = args[0].(string)
	}
	if p.keys != nil {
		left := 0
		for _, key := range p.keys {
			if rows[key] {
				left++
			}
		}
		return fmt.Appendf(nil, `{"left": %d}`, left)
	}
	var keys []string
	for n := range 100 {
		key := fmt.Sprintf("%02d", n)
		if rows[key] && key > after && len(keys) < pageRows {
			keys = append(keys, key)
		}
	}
	if keys == nil {
		return []byte(`{"keys": [], "left": 0}`)
	}
	return fmt.Appendf(nil, `{"keys": ["%s"], "last": "%s", "left": %d}`, strings.Join(keys, `", "`), keys[len(keys)-1], len(keys))
}

// A row that comes later, before or within a page that was read, does not
// prolong the wait; a row that was there is never passed over.
func TestPolledWaitsForTheRowsOfItsBeginning(t *testing.T) {
	pageRows = 3
	defer func() { pageRows = 10_000 }()
	rows, there := polledTable{}, []string{"10", "20", "30", "40", "50", "60", "70"}
	for _, key := range there {
		rows[key] = true
	}
	p := &Polled{Rows: Rows{Table: "t", Pending: "true", Key: "id", KeyType: "text"}}
	rows.drain(t, p, func(question int) {
		rows["00"], rows["15"] = true, true // ever new ones
		if question%2 == 1 {
			for _, key := range there {
				if rows[key] {
					rows[key] = false
					break
				}
			}
		}
	})
	for _, key := range there {
		if rows[key] {
			t.Errorf("the wait has ended, and row %s is not published", key)
		}
	}
}

func TestPolledAsksThePrimaryForAllRows(t *testing.T) {
	for answer, words := range map[string]string{
		`{"standby": true, "keys": []}`: "standby",
		`{"hidden": true, "keys": []}`:  "row-level security",
		`{`:                             "read the answer",
	} {
		p := &Polled{Rows: Rows{Table: "t"}}
		if published, _, err := p.Take([]byte(answer)); published || err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %t, %v", answer, published, err)
		}
	}
}
