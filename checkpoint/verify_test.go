package checkpoint

import (
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// copied makes seen a standby promoted at 0/250 with a copy of the slot, and of
// the database with the checkpoint.
func copied(seen *Server) {
	seen.Timeline, seen.TimelineSwitch = 2, 0x250
	seen.StoredInside, seen.Slot.Synced = true, true
}

func TestVerify(t *testing.T) {
	const transient = failure.Transient // here: no error
	cases := []struct {
		name   string
		change func(cp *Checkpoint, seen *Server) // of a healthy pair; see below
		first  bool                               // there is no checkpoint
		start  pg.LSN
		class  failure.Class
		says   []string
	}{
		{name: "slot confirmed up to the checkpoint", start: 0x200},
		{
			name:   "slot behind the checkpoint, as after a server restart (mode 2)",
			change: func(_ *Checkpoint, seen *Server) { seen.Slot.ConfirmedFlush = 0x150 },
			start:  0x200,
		},
		{
			name:   "server exactly at the checkpoint",
			change: func(_ *Checkpoint, seen *Server) { seen.CurrentLSN = 0x200 },
			start:  0x200,
		},
		{name: "no checkpoint adopts the slot", first: true, start: 0x200},
		{
			name:   "no checkpoint and no slot",
			first:  true,
			change: func(_ *Checkpoint, seen *Server) { seen.Exists, seen.Slot = false, catalog.Slot{} },
			class:  failure.Config, says: []string{"does not exist"},
		},
		{
			name:   "no checkpoint and a lost slot",
			first:  true,
			change: func(_ *Checkpoint, seen *Server) { seen.Slot.WALStatus = "lost" },
			class:  failure.Loss, says: []string{"wal_status", "between 0/200 and", "0/300"},
		},
		{
			name:   "slot missing (mode 5)",
			change: func(_ *Checkpoint, seen *Server) { seen.Exists, seen.Slot = false, catalog.Slot{} },
			class:  failure.Loss, says: []string{`slot "s" is gone`, "between 0/200 and", "0/300"},
		},
		{
			name:   "slot recreated (mode 6)",
			change: func(_ *Checkpoint, seen *Server) { seen.Slot.ConfirmedFlush = 0x300 },
			class:  failure.Loss, says: []string{"recreated", "between 0/200 and 0/300"},
		},
		{
			name:   "slot's WAL removed (mode 7)",
			change: func(_ *Checkpoint, seen *Server) { seen.Slot.WALStatus = "lost" },
			class:  failure.Loss, says: []string{"wal_status", "between 0/200 and", "0/300"},
		},
		{
			name:   "slot invalidated by the idle timeout (mode 8)",
			change: func(_ *Checkpoint, seen *Server) { seen.Slot.InvalidationReason = "idle_timeout" },
			class:  failure.Loss, says: []string{"idle_timeout", "between 0/200 and"},
		},
		{
			name:   "slot advanced by an operator (mode 10)",
			change: func(_ *Checkpoint, seen *Server) { seen.Slot.ConfirmedFlush = 0x201 },
			class:  failure.Loss, says: []string{"advanced", "between 0/200 and 0/201"},
		},
		{
			name:   "table taken out of the publication and added again (mode 12)",
			change: func(_ *Checkpoint, seen *Server) { seen.Publication = "p2" },
			class:  failure.Loss, says: []string{"publication", "between 0/200 and"},
		},
		{
			name:   "standby that was behind promoted (mode 21)",
			change: func(_ *Checkpoint, seen *Server) { seen.Timeline, seen.TimelineSwitch = 2, 0x1ff },
			class:  failure.Loss, says: []string{"0/1FF", "checkpoint at 0/200", "standby"},
		},
		{
			name:   "standby that had everything promoted",
			change: func(_ *Checkpoint, seen *Server) { seen.Timeline, seen.TimelineSwitch = 2, 0x200 },
			start:  0x200,
		},
		{
			name: "promoted standby with a copy of the slot, but without the last checkpoint",
			change: func(_ *Checkpoint, seen *Server) {
				copied(seen)
				seen.Slot.ConfirmedFlush = 0x250
			},
			start: 0x250,
		},
		{
			name: "promoted standby with a copy of the slot that is behind",
			change: func(_ *Checkpoint, seen *Server) {
				copied(seen)
				seen.Slot.ConfirmedFlush = 0x150
			},
			start: 0x200,
		},
		{
			name: "slot advanced after the promotion",
			change: func(_ *Checkpoint, seen *Server) {
				copied(seen)
				seen.Slot.ConfirmedFlush = 0x251
			},
			class: failure.Loss, says: []string{"advanced", "between 0/200 and 0/251"},
		},
		{
			name: "slot made anew on the promoted standby",
			change: func(_ *Checkpoint, seen *Server) {
				copied(seen)
				seen.Slot.Synced, seen.Slot.ConfirmedFlush = false, 0x250
			},
			class: failure.Loss, says: []string{"advanced", "between 0/200 and 0/250"},
		},
		{
			name: "copy of the slot ahead of a checkpoint kept elsewhere",
			change: func(_ *Checkpoint, seen *Server) {
				copied(seen)
				seen.StoredInside, seen.Slot.ConfirmedFlush = false, 0x250
			},
			class: failure.Loss, says: []string{"advanced", "between 0/200 and 0/250"},
		},
		{
			name: "slot that was once copied, advanced without a failover",
			change: func(_ *Checkpoint, seen *Server) {
				copied(seen)
				seen.Timeline, seen.Slot.ConfirmedFlush = 1, 0x250
			},
			class: failure.Loss, says: []string{"advanced", "between 0/200 and 0/250"},
		},
		{
			name: "promoted standby without the slot",
			change: func(_ *Checkpoint, seen *Server) {
				seen.Timeline, seen.TimelineSwitch, seen.Exists = 2, 0x200, false
			},
			class: failure.Loss, says: []string{"is gone"},
		},
		{
			name:   "timeline that never knew ours",
			change: func(_ *Checkpoint, seen *Server) { seen.Timeline = 3 },
			class:  failure.Loss, says: []string{"timeline 3", "does not descend from timeline 1"},
		},
		{
			name:   "backup restored under the same identity (mode 43)",
			change: func(_ *Checkpoint, seen *Server) { seen.CurrentLSN, seen.Slot.ConfirmedFlush = 0x1ff, 0x180 },
			class:  failure.Loss, says: []string{"ends at 0/1FF", "between 0/1FF and 0/200"},
		},
		{
			name:   "another cluster (mode 43)",
			change: func(_ *Checkpoint, seen *Server) { seen.SystemID = "8" },
			class:  failure.Loss, says: []string{"system identifier 7", "the server is 8", "checkpoint.key"},
		},
		{
			name:   "another database (mode 43)",
			change: func(_ *Checkpoint, seen *Server) { seen.Database, seen.Slot.Database = "other", "other" },
			class:  failure.Loss, says: []string{`"app"`, `"other"`, "checkpoint.key"},
		},
		{
			name:   "checkpoint of another slot (mode 63)",
			change: func(cp *Checkpoint, _ *Server) { cp.Slot = "other" },
			class:  failure.Config, says: []string{`"other"`, `"s"`, `"app/s"`, "checkpoint.key"},
		},
		{
			name: "checkpoint of another slot of another server, and no slot (mode 63)",
			change: func(cp *Checkpoint, seen *Server) {
				cp.Slot, cp.SystemID, seen.Exists, seen.Slot = "other", "8", false, catalog.Slot{}
			},
			class: failure.Config, says: []string{`"other"`, `"s"`, `"app/s"`, "checkpoint.key"},
		},
		{
			name:   "adopted while another program read the slot, which that has moved on (mode 65)",
			change: func(cp *Checkpoint, seen *Server) { cp.Adopted, seen.Slot.ConfirmedFlush = true, 0x250 },
			start:  0x250,
		},
		{
			name:   "adopted, and dropped since (mode 65)",
			change: func(cp *Checkpoint, seen *Server) { cp.Adopted, seen.Exists, seen.Slot = true, false, catalog.Slot{} },
			class:  failure.Loss, says: []string{`slot "s" is gone`},
		},
		{
			name:   "slot of another plugin",
			change: func(_ *Checkpoint, seen *Server) { seen.Slot.Plugin = "wal2json" },
			class:  failure.Config, says: []string{"wal2json", "pg_drop_replication_slot('s')"},
		},
		{
			name:   "slot with two-phase commit",
			change: func(_ *Checkpoint, seen *Server) { seen.Slot.TwoPhase = true },
			class:  failure.Config, says: []string{"two_phase", "TWO_PHASE false"},
		},
		{
			name: "physical slot",
			change: func(_ *Checkpoint, seen *Server) {
				seen.Slot.Type, seen.Slot.Plugin, seen.Slot.Database = "physical", "", ""
			},
			class: failure.Config, says: []string{"physical", "source.slot", "--accept-gap"},
		},
		{
			name:   "schema published too",
			change: func(cp *Checkpoint, seen *Server) { cp.Publication, seen.Publication = "9:t=1/2", "9:t=1/2|schema/3" },
			start:  0x200,
		},
		{
			name:   "slot of another database",
			change: func(_ *Checkpoint, seen *Server) { seen.Slot.Database = "other" },
			class:  failure.Config, says: []string{`belongs to database "other"`, "source.slot", "source.url"},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cp := &Checkpoint{LSN: 0x200, SystemID: "7", Timeline: 1, Database: "app", Slot: "s", Publication: "p"}
			seen := Server{
				Name: "s", Key: "app/s", SystemID: "7", Timeline: 1, Database: "app", CurrentLSN: 0x300, Publication: "p", Exists: true,
				Slot: catalog.Slot{Name: "s", Plugin: catalog.Plugin, Database: "app", ConfirmedFlush: 0x200, RestartLSN: 0x100, WALStatus: "reserved"},
			}
			if c.change != nil {
				c.change(cp, &seen)
			}
			if c.first {
				cp = nil
			}

			start, err := Verify(cp, seen)
			if start != c.start || (err == nil) != (c.class == transient) || failure.ClassOf(err) != c.class {
				t.Fatalf("start %s, error %v (class %d); want %s, class %d", start, err, failure.ClassOf(err), c.start, c.class)
			}
			if err == nil {
				return
			}
			text := err.Error() + "\n" + failure.RemedyOf(err)
			for _, s := range c.says {
				if !strings.Contains(text, s) {
					t.Errorf("%q is not in:\n%s", s, text)
				}
			}
			if c.class == failure.Loss && !strings.Contains(failure.RemedyOf(err), "cdc-outbox setup --accept-gap") {
				t.Errorf("the remedy does not say how to accept the gap: %s", failure.RemedyOf(err))
			}
		})
	}
}
