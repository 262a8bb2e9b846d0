// Package checkpoint turns acknowledgements into a position safe to confirm,
// and keeps the position durable beside the replication slot.
//
// The Tracker is told of records in stream order and of their acks in any
// order; the position is the last transaction end with everything before it
// acked. A Store keeps the position, together with the identity of its log;
// Verify compares both at the next start with the database.
//
// Invariants:
//
//  1. Tracker.Position is L only if every record of every transaction ending at or
//     before L was reported done. It never goes back.
//  2. It is always the end of a transaction, or a position sent by the server
//     between transactions.
//  3. The tracker's memory grows with the number of transactions since the
//     oldest unacked one, not with their rows.
//  4. The pipeline saves a checkpoint before it confirms the LSN to the slot. So a
//     slot confirmed beyond the checkpoint was moved by somebody else, as Verify
//     finds. (A failover may lose a checkpoint kept in the database.)
//  5. A store returns the last checkpoint saved under its key, none where none
//     was saved, or an error. An unreadable checkpoint is an error, never none.
//  6. Of two holders of a single slot, the higher Epoch wins. So a process paused
//     and without the slot does not set the checkpoint back. Nor does a late save
//     of the same holder: the further position wins.
//  7. With exactly once, a checkpoint is saved in the Kafka transaction of the
//     events. It may be in the middle of a transaction of the database (Cut),
//     and names the Kafka transactions that may count in part (Doubtful).
//
// Non-goals: deciding when to save or confirm (pipeline), mutual exclusion of two
// connectors (the replication slot is the lock), history of checkpoints.
//
// Signatures here have internal types and may change with any release; package
// connector is for other programs.
package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Checkpoint is the certain progress of a connector, with the identity of its log, so
// that another database, a recreated slot or a rebuilt publication is noticed.
type Checkpoint struct {
	LSN             pg.LSN `json:"lsn"` // everything ending at or before is acked; never 0 once saved
	SystemID        string `json:"system_id"`
	Timeline        int32  `json:"timeline"`
	Database        string `json:"database"`
	Slot            string `json:"slot"`
	Publication     string `json:"publication"` // catalog.Publication.Fingerprint
	PublicationName string `json:"publication_name,omitempty"`
	// Horizon is of a catalog.View with its end not behind LSN: changes of the
	// catalogs by transactions with an earlier id were in force at LSN. 0: not
	// known.
	Horizon uint64 `json:"horizon,omitempty"`
	// Landmark is the last transaction with an event of ours ending at or before
	// LSN. A replay must show the landmark again; see Replay.
	Landmark Landmark `json:"-"` // see document
	// Cut is a transaction ending behind LSN, with some events acked already; zero:
	// none. Only exactly-once delivery leaves a Cut.
	Cut Cut `json:"-"` // see document
	// Doubtful are Kafka transactions behind LSN that may count in part. Not to
	// be changed.
	Doubtful []Doubtful `json:"-"` // see document
	// Skip is a transaction to be passed over by an operator's order; zero: none.
	// Forgotten once passed by LSN.
	Skip Landmark `json:"-"` // see document
	// Owned tells by OID of which tables the rows counted; nil: not noted.
	Owned Owned `json:"-"` // see document
	// Scope names the sources of our events.
	Scope   string    `json:"scope,omitempty"`
	SavedAt time.Time `json:"saved_at"`
	// Epoch orders the holders of the slot. Each holder takes a higher epoch than
	// the checkpoint found has. An epoch is also at least the server's clock in
	// microseconds, and so higher than every earlier holder's. Later saves of an
	// earlier holder then do not count.
	Epoch int64 `json:"epoch"`
	// Snapshot is set while the first start's snapshot is being published.
	Snapshot bool `json:"snapshot,omitempty"`
	// Initial is how far that snapshot is; nil: not begun, or not known. Not to be
	// changed.
	Initial *Initial `json:"initial,omitempty"`
	// Adopted is set by `adopt` while another program reads the slot, and may have
	// moved the slot on since. The first checkpoint of our own is not Adopted.
	Adopted bool `json:"adopted,omitempty"`
	// Published: an event was published before the Landmark began to count, as from
	// another slot. See HasPublished.
	Published bool `json:"published,omitempty"`
	// Ends are what brokers had acknowledged by then. Not to be changed.
	Ends Ends `json:"ends,omitempty"`
	// Made is set by setup at the creation of the slot: nobody has read the slot yet.
	// The first checkpoint of a connector is not Made.
	Made bool `json:"made,omitempty"`
	// Lost is a loss not accepted yet; nil: none.
	Lost *Lost `json:"lost,omitempty"`
	// Accepted is a loss accepted, whose events may be missing; nil: none. Not to be
	// changed.
	Accepted *AcceptedGap `json:"-"` // see document
	// Quarantine is the topic of parked events in use; "": none. No other setting may forget
	// its events.
	Quarantine string `json:"quarantine,omitempty"`
	// Settled are parked events published or left out by the checkpoint's own Kafka
	// transaction: they count as settled, also with a record in the quarantine's topic.
	// Not to be changed.
	Settled []uint64 `json:"settled,omitempty"`
	// Upgrade is the preparation of a major upgrade; nil: none.
	Upgrade *Upgrade `json:"upgrade,omitempty"`
	// Creating is set in a Beginning, which is no checkpoint yet.
	Creating bool `json:"creating,omitempty"`
}

// HasPublished reports whether an event was ever published, from any slot.
func (c *Checkpoint) HasPublished() bool {
	return c.Published || c.Landmark.XID != 0 || c.Cut.XID != 0 || c.Initial.Published() > 0
}

// Replaces reports whether c counts, and not old, where both are stored.
func (c *Checkpoint) Replaces(old *Checkpoint) bool {
	switch {
	case c.Epoch != old.Epoch:
		return c.Epoch > old.Epoch
	case c.LSN != old.LSN:
		return c.LSN > old.LSN
	case old.Initial.beyond(c.Initial):
		return false
	}
	return !old.Cut.beyond(c.Cut)
}

// Store keeps the checkpoint of a connector. Save is called from a single
// goroutine at a time. Load may be called from any, also during a save. An
// error without a class of its own may pass: the same call may be tried again
// on the same store.
type Store interface {
	// Load returns the last checkpoint saved; ok is false where there is none.
	Load(ctx context.Context) (cp Checkpoint, ok bool, err error)
	// Save returns once the checkpoint is durable. After an error the checkpoint
	// may be durable or not. Repeating a Save does no harm.
	Save(ctx context.Context, cp Checkpoint) error
	// Close releases the store's resources; nothing else may be called after.
	Close()
}

// Beginning is saved before a slot is created, if a snapshot has to be published, or each
// event is to be delivered once. It is no checkpoint yet, but says that nobody has read
// the slot, until the first checkpoint. Otherwise an unread slot and a slot with a lost
// checkpoint would look the same.
func Beginning(server catalog.Server, slot string) Checkpoint {
	return Checkpoint{
		LSN:      server.FlushLSN,
		SystemID: server.SystemID,
		Timeline: server.Timeline,
		Database: server.Database,
		Slot:     slot,
		SavedAt:  time.Now().UTC(),
		Epoch:    1,
		Snapshot: true,
		Creating: true,
	}
}

// ErrNone is wrapped by the errors of a slot without a checkpoint, where one is
// required.
var ErrNone = errors.New("there is no checkpoint")

// adopt is the remedy for a slot another program has read.
const adopt = "`cdc-outbox adopt --yes` takes it over"

// SecondReader is the error of a slot without a checkpoint, if the same events are read
// from other slots.
func SecondReader(seen Server, slots []string) error {
	what, meant := fmt.Sprintf("slot %q does not exist", seen.Name), "`cdc-outbox setup` makes it"
	if seen.Exists {
		what, meant = fmt.Sprintf("there is no checkpoint of slot %q", seen.Name), "`cdc-outbox adopt --yes` notes it"
	}
	return failure.Configf(fmt.Sprintf("did you mean source.slot: %s? If another connector is to publish the same events once more: %s", slots[0], meant),
		"%s, and the same is read from slot %s already: each event would be published twice, or what is still in that slot be left there",
		what, strings.Join(slots, ", "))
}

// LeftBehind is the error of a missing slot without a checkpoint, beside other slots
// without a reader and perhaps with the same events.
func LeftBehind(seen Server, slots []string) error {
	return failure.Configf(fmt.Sprintf("did you mean source.slot: %s? If that has nothing of this connector: `cdc-outbox setup` makes slot %s", slots[0], seen.Name),
		"slot %q does not exist, and nobody reads slot %s, which may have events of the same tables: they would be left there",
		seen.Name, strings.Join(slots, ", "))
}

// Undecided is the error of an existing slot, if nothing tells where to begin:
// whether the requested snapshot was published, or, to deliver each event once,
// which events were delivered. found is the checkpoint, begun a Beginning; nil:
// the store has none.
func Undecided(slot catalog.Slot, found, begun *Checkpoint, snapshot, once bool) error {
	switch {
	case begun != nil:
		return nil
	case found != nil:
		if found.Made && snapshot {
			return withoutSnapshot(slot)
		}
		return nil
	case snapshot:
		return snapshotUndecided(slot)
	case once:
		return unknown(slot)
	}
	return nil
}

// snapshotUndecided is the error of a slot with a snapshot asked for, and perhaps
// published already.
func snapshotUndecided(slot catalog.Slot) error {
	return failure.Configf(
		"set source.snapshot to never to read the slot on from there; "+
			"or publish what is in the outbox table first, again or for the first time: `cdc-outbox setup --accept-gap --snapshot --yes`; "+
			"or, if the checkpoint is under another checkpoint.key or in another store, name that",
		"source.snapshot is initial, and slot %q exists, confirmed up to %s, but %w: "+
			"it was lost or is looked for in the wrong place, or somebody else created the slot. Whether the rows in the outbox table were published is not known",
		slot.Name, slot.ConfirmedFlush, ErrNone)
}

// withoutSnapshot is the error of a slot of setup's with a snapshot asked for. Earlier
// rows of the table are not in the slot, and a row does not tell whether it is.
func withoutSnapshot(slot catalog.Slot) error {
	return failure.Configf(
		"set source.snapshot to never to read the slot on from there; "+
			"or publish what is in the outbox table first: `cdc-outbox setup --accept-gap --snapshot --yes`; some of it comes twice then",
		"source.snapshot is initial, but setup made slot %q without a snapshot: what was in the outbox table before %s is not in it", slot.Name, slot.ConfirmedFlush)
}

// Vanished warns of a slot read before and without a checkpoint. The connector reads on:
// unconfirmed events come again, and nothing is lost. But an earlier loss does not show.
func Vanished(slot catalog.Slot) error {
	return failure.Configf("find out why. If this connector has read it: checkpoint.store, its topic, table or path, or checkpoint.key was changed, or that was deleted or emptied; "+
		"set them as they were, or make sure that nobody deletes it. If another program has: from its stop on, `cdc-outbox adopt --yes` before the first run notices a slot that is dropped until then",
		"slot %q was read before, and no checkpoint of it is there: it is read on from its own confirmed position, %s, without a look whether events before it were lost", slot.Name, slot.ConfirmedFlush)
}

// unknown is the error of a slot without knowledge of the events delivered behind the
// confirmed position, if each event is to be delivered once.
func unknown(slot catalog.Slot) error {
	return failure.Configf(
		"if the slot is new (`cdc-outbox setup --print`) or was read by another program, such as Debezium: "+adopt+", from its confirmed position on; "+
			"if there was a checkpoint, name its checkpoint.key or checkpoint.topic: without it, what was delivered behind that position is delivered again",
		"sink.kafka.delivery is exactly_once, and slot %q exists, confirmed up to %s, but %w: "+
			"another program created or read the slot, or the checkpoint was lost or is looked for in the wrong place",
		slot.Name, slot.ConfirmedFlush, ErrNone)
}

// Landmark is a transaction to recognise a log by. Positions alone are not enough: another
// log may have begun as a copy, as after a failover or when a disk was put back. The LSN
// of the commit record, the transaction's id and the microsecond of the commit are the
// same in each replay (PostgreSQL documentation, "Logical Replication Message Formats",
// Begin), and in no other log.
//
// Without an XID a Landmark is only a position: the log has had no event of ours since,
// so there is no transaction to recognise. The zero Landmark means: unknown.
type Landmark struct {
	Commit pg.LSN
	XID    uint32
	Time   time.Time
}

// LandmarkOf is the transaction of a row.
func LandmarkOf(row *pg.Row) Landmark {
	return Landmark{Commit: row.Position.CommitLSN, XID: row.XID, Time: row.CommitTime}
}

// Scope names the events used for landmarks: the rows of the tables and, with
// messages, the logical messages of the prefix. A landmark of another scope
// proves nothing.
func Scope(tables []pg.Table, messages bool, prefix string) string {
	names := make([]string, 0, len(tables)+1)
	for _, t := range tables {
		names = append(names, t.String())
	}
	slices.Sort(names)
	if messages {
		names = append(names, scopeMessages+prefix)
	}
	return strings.Join(names, ",")
}

// IsZero reports whether nothing is known.
func (l Landmark) IsZero() bool { return l == Landmark{} }

// String names the transaction for an operator.
func (l Landmark) String() string {
	return fmt.Sprintf("%d at %s of %s", l.XID, l.Commit, l.Time.Format(time.RFC3339Nano))
}

// Same reports whether both are the same transaction.
func (l Landmark) Same(o Landmark) bool {
	return l.Commit == o.Commit && l.XID == o.XID && l.Time.Equal(o.Time)
}
