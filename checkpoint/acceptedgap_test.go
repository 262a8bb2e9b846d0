package checkpoint

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// A gap begins where the last published transaction is known, and otherwise anywhere.
func TestAcceptedGapBegins(t *testing.T) {
	published, cut := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)
	gone, another := lacking(errors.New("gone")), diverging(errors.New("another log"))
	of := Checkpoint{LSN: 0x100, SystemID: "7", Timeline: 2, Landmark: Landmark{Commit: 0x90, XID: 5, Time: published}}
	for name, c := range map[string]struct {
		change func(*Checkpoint)
		loss   error
		whole  bool
		want   time.Time
	}{
		"the slot is gone":                {nil, gone, false, published},
		"another log":                     {nil, another, false, time.Time{}},
		"another loss":                    {nil, errors.New("brokers"), false, time.Time{}},
		"no loss":                         {nil, nil, false, time.Time{}},
		"brokers lost records, too":       {nil, gone, true, time.Time{}},
		"within a transaction":            {func(cp *Checkpoint) { cp.Cut = Cut{Landmark{0x110, 6, cut}, 3} }, gone, false, cut},
		"within the first transaction":    {func(cp *Checkpoint) { cp.Landmark, cp.Cut = Landmark{}, Cut{Landmark{0x110, 6, cut}, 3} }, gone, false, cut},
		"nothing was published":           {func(cp *Checkpoint) { cp.Landmark = Landmark{Commit: 0x100} }, gone, false, time.Time{}},
		"a snapshot was to be published":  {func(cp *Checkpoint) { cp.Snapshot = true }, gone, false, time.Time{}},
		"after an earlier gap":            {func(cp *Checkpoint) { cp.Accepted = &AcceptedGap{ID: "e", Since: cut} }, gone, false, cut},
		"after a later gap":               {func(cp *Checkpoint) { cp.Accepted = &AcceptedGap{ID: "e", Since: published.Add(time.Hour)} }, gone, false, published},
		"after a gap of any time":         {func(cp *Checkpoint) { cp.Accepted = &AcceptedGap{ID: "e"} }, gone, false, time.Time{}},
		"of any time, after an early gap": {func(cp *Checkpoint) { cp.Accepted = &AcceptedGap{ID: "e", Since: cut} }, another, false, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			cp := of
			if c.change != nil {
				c.change(&cp)
			}
			g := cp.Accept(c.loss, c.whole)
			if !g.Since.Equal(c.want) || g.ID == "" || g.ID == "e" {
				t.Errorf("%+v, want it to begin at %s", g, c.want)
			}
			if !g.Within(time.Time{}) || g.Since.IsZero() && g.Within(time.Unix(0, 0)) {
				t.Error("rows of any time have it all, later rows of a gap of any time do not")
			}
			if !g.Since.IsZero() && (!g.Within(g.Begin()) || g.Within(g.Begin().Add(time.Second)) || g.Since.Sub(g.Begin()) < time.Hour) {
				t.Errorf("rows from %s on have it all", g.Begin())
			}
		})
	}
}

// The places of an earlier gap stay, and the decision is another.
func TestAcceptedGapsJoin(t *testing.T) {
	cp := Checkpoint{LSN: 0x300, SystemID: "9", Timeline: 4,
		Accepted: &AcceptedGap{ID: "e", From: 0x100, To: 0x200, SystemID: "7", Timeline: 2, Accepted: time.Unix(1000, 0).UTC(), Reason: "first"}}
	g := cp.Accept(errors.New("second"), false).Goes(0x400)
	want := AcceptedGap{ID: g.ID, From: 0x100, To: 0x400, SystemID: "7", Timeline: 2, Accepted: time.Unix(1000, 0).UTC(), Reason: "second"}
	if *g != want {
		t.Errorf("got  %+v\nwant %+v", *g, want)
	}
	if cp.Accepted.To != 0x200 {
		t.Error("the earlier gap was changed")
	}
	if g := (*Checkpoint)(nil).Accept(errors.New("lost"), false); g.From != 0 || !strings.Contains(g.String(), "an unknown position") {
		t.Errorf("without a checkpoint: %s", g)
	}
	if (*AcceptedGap)(nil).Goes(5) != nil {
		t.Error("no gap became a gap")
	}
}

// Only the ID, secret to readers of the log, ends a gap.
func TestMends(t *testing.T) {
	m := Mending{Slot: "s", Gap: "g"}
	if !m.Mends(&AcceptedGap{ID: "g"}) || m.Mends(&AcceptedGap{ID: "h"}) || m.Mends(nil) || (&Mending{}).Mends(&AcceptedGap{}) {
		t.Error("the wrong gap is mended")
	}
}
