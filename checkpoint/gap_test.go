package checkpoint

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// A comparison by event id mends what the log lacks, and nothing else.
func TestGapIn(t *testing.T) {
	gone := func(_ *Checkpoint, seen *Server) { seen.Exists, seen.Slot = false, catalog.Slot{} }
	advanced := func(_ *Checkpoint, seen *Server) { seen.Slot.ConfirmedFlush = 0x300 }
	another := func(_ *Checkpoint, seen *Server) { seen.Timeline = 2 }
	lost := func(gap *Gap) func(*Checkpoint, *Server) {
		return func(cp *Checkpoint, _ *Server) { cp.Lost = &Lost{Text: "lost", Remedy: "mend", Gap: gap} }
	}
	for name, c := range map[string]struct {
		changes []func(*Checkpoint, *Server)
		want    *Gap
	}{
		"the slot is gone":           {[]func(*Checkpoint, *Server){gone}, &Gap{}},
		"the slot is invalidated":    {[]func(*Checkpoint, *Server){func(_ *Checkpoint, seen *Server) { seen.Slot.WALStatus = "lost" }}, &Gap{}},
		"the slot was advanced":      {[]func(*Checkpoint, *Server){advanced}, &Gap{}},
		"a timeline apart":           {[]func(*Checkpoint, *Server){another}, &Gap{Diverged: true}},
		"a standby that was behind":  {[]func(*Checkpoint, *Server){another, func(_ *Checkpoint, seen *Server) { seen.TimelineSwitch = 0x150 }}, &Gap{Diverged: true}},
		"the log ends before":        {[]func(*Checkpoint, *Server){func(_ *Checkpoint, seen *Server) { seen.CurrentLSN = 0x150 }}, &Gap{Diverged: true}},
		"a repair was begun":         {[]func(*Checkpoint, *Server){lost(&Gap{}), advanced}, &Gap{}},
		"begun, of another log":      {[]func(*Checkpoint, *Server){lost(&Gap{Diverged: true})}, &Gap{Diverged: true}},
		"begun, then another log":    {[]func(*Checkpoint, *Server){lost(&Gap{}), another}, &Gap{Diverged: true}},
		"begun, then another server": {[]func(*Checkpoint, *Server){lost(&Gap{}), func(_ *Checkpoint, seen *Server) { seen.SystemID = "8" }}, nil},
		"brokers lost records":       {[]func(*Checkpoint, *Server){lost(nil), gone}, nil},
		"another server":             {[]func(*Checkpoint, *Server){gone, func(_ *Checkpoint, seen *Server) { seen.SystemID = "8" }}, nil},
		"another database":           {[]func(*Checkpoint, *Server){gone, func(_ *Checkpoint, seen *Server) { seen.Database = "other" }}, nil},
		"another publication":        {[]func(*Checkpoint, *Server){gone, func(_ *Checkpoint, seen *Server) { seen.Publication = "9:public.outbox" }}, nil},
		"messages were read": {[]func(*Checkpoint, *Server){gone, func(cp *Checkpoint, seen *Server) {
			cp.Scope, seen.Scope = "public.outbox,"+scopeMessages+"p", "public.outbox"
		}}, nil},
		"an unread slot":         {[]func(*Checkpoint, *Server){gone, func(cp *Checkpoint, _ *Server) { cp.Made = true }}, nil},
		"another program's slot": {[]func(*Checkpoint, *Server){gone, func(cp *Checkpoint, _ *Server) { cp.Adopted = true }}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cp := Checkpoint{LSN: 0x200, SystemID: "7", Timeline: 1, Database: "d", Slot: "s", Publication: "1:public.outbox"}
			seen := Server{Name: "s", SystemID: "7", Timeline: 1, Database: "d", Publication: "1:public.outbox", CurrentLSN: 0x300, Exists: true,
				Slot: catalog.Slot{Name: "s", Plugin: catalog.Plugin, Type: "logical", Database: "d", ConfirmedFlush: 0x200}}
			for _, change := range c.changes {
				change(&cp, &seen)
			}
			_, loss := Verify(&cp, seen)
			if loss == nil {
				t.Fatal("no loss")
			}
			got := cp.GapIn(loss, seen)
			if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
				t.Errorf("%v: gap %v, want %v", loss, got, c.want)
			}
			if noted := LostBy(loss); c.want != nil && (noted.Gap == nil || failure.ClassOf(loss) != failure.Loss) {
				t.Errorf("a checkpoint with the loss has no gap: %+v", noted)
			}
		})
	}
}

// A stream that shows another log is a gap, too.
func TestAReplayOfAnotherLogIsAGap(t *testing.T) {
	past := Past{Slot: 0x100, Start: 0x100, Known: 0x200, Since: Landmark{Commit: 0x180, XID: 5}}
	_, err := NewReplay(past).Reached(pg.LSN(0x190))
	if gap := gapOf(err); gap == nil || !gap.Diverged {
		t.Errorf("%v: gap %v", err, gap)
	}
	var none *Checkpoint
	if none.GapIn(err, Server{}) != nil {
		t.Error("a gap without a checkpoint")
	}
}
