package checkpoint

import (
	"fmt"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Server is the present state of the database, to compare with a checkpoint.
//
// While another process may hold the slot, read Slot first, then load the checkpoint, then
// read CurrentLSN: the holder saves the checkpoint before confirming, so in any other
// order its progress looks like an advanced slot or a server fallen behind.
type Server struct {
	Name     string // of the slot, perhaps missing
	Scope    string // of the events to be read; "" for none
	Key      string // of the checkpoint in the store
	SystemID string
	Timeline int32
	Database string
	// CurrentLSN is the end of the WAL on disk (pg_current_wal_flush_lsn).
	CurrentLSN pg.LSN
	// Publication is the catalog.Publication.Fingerprint.
	Publication, PublicationName string
	Exists                       bool // whether the slot does
	Slot                         catalog.Slot
	// TimelineSwitch is the place where the server's history left the checkpoint's
	// timeline (catalog.TimelineSwitch), or 0 if never there. It counts only if the
	// timelines differ.
	TimelineSwitch pg.LSN
	// StoredInside: the checkpoint is kept in the database itself
	// (checkpoint.store: postgres), and fails over with it.
	StoredInside bool
	// Patroni manages the cluster, and may have dropped the slot.
	Patroni bool
}

// dropped adds Patroni as a possible cause to the loss of a slot.
func (s *Server) dropped(slot string, err error) error {
	if !s.Patroni {
		return err
	}
	return failure.Lossf(catalog.PatroniKeeps(slot, s.Database)+"; then "+failure.RemedyOf(err), "%w; %s", err, catalog.PatroniDrops)
}

// Remedies of the losses.
const (
	acceptGap     = "find out what happened (docs/runbook/exit-code-3.md); then " + catalog.AcceptGap
	wrongDatabase = "correct source.url; or, if another connector uses the same checkpoint.key, give this one its own. If the database was restored or replaced on purpose: " + acceptGap
	readElsewhere = "; if a connector read the slot with another checkpoint.store, checkpoint.topic or checkpoint.key meanwhile, nothing is missing: set that again"
	switchBack    = "a standby took over that had no copy of the slot. If the former primary has it still (`cdc-outbox check` looks there), drop it nowhere (pg_rewind would, too), make that server the primary again, and start the connector: nothing is lost. Otherwise "
	beginAnew     = "begin anew, from the present, as nothing was read yet: `cdc-outbox teardown --yes`, then `cdc-outbox setup`"
	createSlot    = "`cdc-outbox setup` creates it, or source.create: true lets run do so"
)

// Verify compares the last checkpoint (nil: none) with the database. It returns the
// position to start the stream from, or an error if events since the checkpoint may be
// lost.
//
// Verify rests on the order of save and confirmation (invariant 4): a slot confirmed
// beyond the checkpoint was moved by somebody else. PostgreSQL itself would not say so: it
// starts a stream from the later of the position asked for and the confirmed position, and
// skips everything between (PostgreSQL documentation, START_REPLICATION). A confirmed
// position before the checkpoint is normal: the server writes positions to disk only at
// its own checkpoints. The stream then starts at our checkpoint. After a failover the slot
// may be ahead of a checkpoint kept in the database. The stream then starts at the slot's
// position: see copiedAhead.
//
// Without a checkpoint the slot is taken as is.
func Verify(stored *Checkpoint, seen Server) (start pg.LSN, err error) {
	if stored != nil {
		for _, rule := range []func(*Checkpoint, *Server) error{
			(*Checkpoint).Belongs, accepted, sameHistory, notBehind, slotExists, sameMessages,
		} {
			if err := rule(stored, &seen); err != nil {
				return 0, err
			}
		}
	}
	if err := slotReadable(stored, &seen); err != nil {
		return 0, err
	}
	if stored == nil {
		return seen.Slot.ConfirmedFlush, nil
	}
	if err := notAdvanced(stored, &seen); err != nil {
		return 0, err
	}
	if err := samePublication(stored, &seen); err != nil {
		return 0, err
	}
	return max(stored.LSN, seen.Slot.ConfirmedFlush), nil
}

func sameDatabase(stored *Checkpoint, seen *Server) error {
	if stored.Made && (stored.SystemID != seen.SystemID || stored.Database != seen.Database) {
		return failure.Configf("correct source.url; or, for this database: `cdc-outbox setup`",
			"setup made the slot in database %q of system identifier %s, and the connection is to %q of %s", stored.Database, stored.SystemID, seen.Database, seen.SystemID)
	}
	if stored.SystemID != seen.SystemID {
		return stored.upgraded(failure.Lossf(wrongDatabase,
			"wrong database cluster: the checkpoint at %s is of system identifier %s, the server is %s",
			stored.LSN, stored.SystemID, seen.SystemID))
	}
	if stored.Database != seen.Database {
		return failure.Lossf(wrongDatabase,
			"wrong database: the checkpoint at %s is of database %q, the connection is to %q",
			stored.LSN, stored.Database, seen.Database)
	}
	return nil
}

// sameHistory finds a standby promoted before it had received everything we read from the
// old primary. Its later events have the same LSNs as events we read.
func sameHistory(stored *Checkpoint, seen *Server) error {
	if stored.Timeline == seen.Timeline {
		return nil
	}
	if seen.TimelineSwitch == 0 {
		return diverging(failure.Lossf(acceptGap,
			"the server is on timeline %d, which does not descend from timeline %d of the checkpoint at %s: it was restored from a backup, or is another branch; events between %s and the server's position %s cannot be told apart",
			seen.Timeline, stored.Timeline, stored.LSN, stored.LSN, seen.CurrentLSN))
	}
	if seen.TimelineSwitch < stored.LSN {
		return diverging(failure.Lossf(acceptGap,
			"the server left timeline %d at %s, before the checkpoint at %s: a standby that was behind took over; events it committed between %s and %s may not be published",
			stored.Timeline, seen.TimelineSwitch, stored.LSN, seen.TimelineSwitch, seen.CurrentLSN))
	}
	return nil
}

func notBehind(stored *Checkpoint, seen *Server) error {
	if seen.CurrentLSN >= stored.LSN {
		return nil
	}
	return diverging(failure.Lossf(acceptGap,
		"the server's log ends at %s, before the checkpoint at %s: it was restored from a backup, or is a standby that was behind; what it commits between %s and %s would be skipped",
		seen.CurrentLSN, stored.LSN, seen.CurrentLSN, stored.LSN))
}

func slotExists(stored *Checkpoint, seen *Server) error {
	if seen.Exists {
		return nil
	}
	known, remedy := "was read up to", acceptGap
	if stored.Made {
		known = "was made by setup at"
	}
	if stored.Timeline != seen.Timeline {
		remedy = switchBack + remedy
	}
	return lacking(seen.dropped(stored.Slot, failure.Lossf(remedy,
		"slot %q is gone, but %s %s: events committed between %s and the server's position %s can no longer be read from the log",
		stored.Slot, known, stored.LSN, stored.LSN, seen.CurrentLSN)))
}

// sameMessages finds a prefix of messages not read any more, as after a mistyped
// source.message_prefix: the messages would be passed over without a word.
func sameMessages(stored *Checkpoint, seen *Server) error {
	was, now := messagesOf(stored.Scope), messagesOf(seen.Scope)
	if stored.Made || was == "" || seen.Scope == "" || was == now {
		return nil
	}
	prefix := strings.TrimPrefix(was, scopeMessages)
	return failure.Configf(fmt.Sprintf("did you mean source.message_prefix: %s, with source.mode: message? If no more messages of that prefix are to be published: ", prefix)+catalog.AcceptGap,
		"messages with the prefix %q were read up to the checkpoint at %s, and the configuration does not read them", prefix, stored.LSN)
}

// messagesOf is the part of a scope of messages; "" for none.
func messagesOf(scope string) string {
	if i := strings.LastIndex(","+scope, ","+scopeMessages); i >= 0 {
		return scope[i:]
	}
	return ""
}

// slotReadable checks the requirements of a slot, with or without a checkpoint.
func slotReadable(stored *Checkpoint, seen *Server) error {
	slot := &seen.Slot
	if !seen.Exists {
		return failure.Configf(createSlot, "the replication slot does not exist")
	}
	if err := slot.Unfit(seen.Database); err != nil {
		return err
	}
	if reason, lost := slot.Lost(); lost {
		from := slot.ConfirmedFlush
		if stored != nil {
			from = max(from, stored.LSN)
		}
		return lacking(failure.Lossf(acceptGap,
			"slot %q is lost (%s): events committed between %s and the server's position %s can no longer be read from the log",
			slot.Name, reason, from, seen.CurrentLSN))
	}
	return nil
}

func notAdvanced(stored *Checkpoint, seen *Server) error {
	if seen.Slot.ConfirmedFlush <= stored.LSN || stored.Adopted || copiedAhead(stored, seen) {
		return nil
	}
	return lacking(seen.dropped(seen.Slot.Name, failure.Lossf(acceptGap+readElsewhere,
		"slot %q was advanced or recreated by somebody else: its confirmed position is %s, the checkpoint is at %s; the server skips events committed between %s and %s",
		seen.Slot.Name, seen.Slot.ConfirmedFlush, stored.LSN, stored.LSN, seen.Slot.ConfirmedFlush)))
}

// copiedAhead reports whether a failover explains a slot beyond the checkpoint: a standby
// took over with a copy of the slot, but not yet the checkpoint's last row.
//
// The row for position L is written, and replicated, after L. A standby of PostgreSQL 17
// copies the slot's position as soon as it has the log up to there
// (sync_replication_slots; slotsync.c), perhaps before the row arrives. Up to where the
// standby left the old timeline, we moved the slot, on the old primary. These positions
// had been saved there, so everything before them is published. A later position is of
// the new primary's log, and somebody else moved the slot.
//
// An advance of the slot by somebody else on the old primary cannot be detected
// if the failover came before a connector looked again. A running
// connector looks every two seconds. A store outside the database has no such
// gap.
func copiedAhead(stored *Checkpoint, seen *Server) bool {
	return seen.StoredInside && seen.Slot.Synced &&
		stored.Timeline != seen.Timeline && seen.Slot.ConfirmedFlush <= seen.TimelineSwitch
}

func samePublication(stored *Checkpoint, seen *Server) error {
	if err := stored.MadeFor(seen.PublicationName); err != nil {
		return err
	}
	if catalog.SamePublication(stored.Publication, seen.Publication) {
		return nil
	}
	gone := catalog.LeftOut(stored.Publication, seen.Publication)
	switch {
	case len(gone) > 0 && stored.Made: // nothing was read
		return nil
	case stored.Made:
		return failure.Configf(beginAnew,
			"the publication was recreated, or an outbox table was taken out of it and added again, since setup made the slot at %s: rows inserted in between are not in the stream", stored.LSN)
	case len(gone) > 0:
		return failure.Lossf("name it in source.tables, if it was renamed by its present name; or, if no more of it is to be published: "+catalog.AcceptGap,
			"source.tables does not name %s any more, which was read up to the checkpoint at %s: events in it committed since are not published",
			strings.Join(gone, ", "), stored.LSN)
	}
	return failure.Lossf(acceptGap,
		"the publication was recreated, another table has taken an outbox table's name, or an outbox table was taken out of it and added again, since the checkpoint at %s: rows inserted in between are not in the stream, which may be any between %s and the server's position %s",
		stored.LSN, stored.LSN, seen.CurrentLSN)
}

// WithoutPublication is the error of an unread slot without its publication; nil: the slot
// was read, or is for messages: they do not pass through a publication.
func (c *Checkpoint) WithoutPublication(name string) error {
	if err := c.MadeFor(name); err != nil || !c.Made || catalog.NoTables(c.Publication) {
		return err
	}
	return failure.Configf(beginAnew, "publication %q does not exist any more, for which setup made slot %q at %s", name, c.Slot, c.LSN)
}

// MadeFor returns why an unread slot cannot be read through the publication, if
// setup made the slot for another.
func (c *Checkpoint) MadeFor(publication string) error {
	if !c.Made || c.PublicationName == publication || catalog.NoTables(c.Publication) {
		return nil
	}
	return failure.Configf(fmt.Sprintf("set source.publication to %s; or %s", c.PublicationName, beginAnew),
		"setup made slot %q at %s for publication %q, and source.publication is %q: the log from before a publication was created cannot be read through it",
		c.Slot, c.LSN, c.PublicationName, publication)
}
