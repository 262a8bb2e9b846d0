package catalog

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// CandidateState is how a failover to a server would find the slot there.
type CandidateState string

// The states of a Candidate.
const (
	CandidatePrimary     CandidateState = "primary"     // the slot's own server
	CandidateReady       CandidateState = "ready"       // a copy of the slot, to go on from
	CandidateTemporary   CandidateState = "temporary"   // a copy a promotion drops
	CandidateInvalidated CandidateState = "invalidated" // a copy no longer readable
	CandidateStale       CandidateState = "stale"       // a copy at a standstill
	CandidateBlocked     CandidateState = "blocked"     // a slot of the same name keeps the copy away
	CandidateHeld        CandidateState = "held"        // a copy held back: nothing would be sent
	CandidateMissing     CandidateState = "missing"     // no slot
	CandidateUnsupported CandidateState = "unsupported" // a version without copies of slots
	CandidateApart       CandidateState = "apart"       // no standby of the slot's server
	CandidateUnknown     CandidateState = "unknown"     // no answer
)

// Candidate is a server a failover may go to, and how the slot stands there.
type Candidate struct {
	Host  string         `json:"host"`
	State CandidateState `json:"state"`
	// Behind is how much log the copy is behind the slot; nil without a copy.
	Behind *int64 `json:"behind_bytes,omitempty"`
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"` // "": there is nothing to do
}

// Judged reports whether the server should have a copy of the slot.
func (c Candidate) Judged() bool {
	return c.State != CandidatePrimary && c.State != CandidateUnsupported
}

// Ready reports whether the connector would go on after a failover to the server.
func (c Candidate) Ready() bool { return c.State == CandidateReady }

// String is the text for an operator.
func (c Candidate) String() string { return c.Host + " " + c.Text }

// original is the slot on its own server, no copy.
type original struct {
	name     string // of the slot
	server   Server
	instance Instance
	slot     Slot
	exists   bool
	physical []string // slots for standbys
}

// standing is the answer of a possible new primary about itself.
type standing struct {
	host     string
	err      error // there is no answer
	server   Server
	instance Instance
	slot     Slot
	exists   bool
	patroni  bool

	syncs, feedback bool     // sync_replication_slots, hot_standby_feedback
	slotName        string   // primary_slot_name
	dbname          *bool    // whether primary_conninfo names a database; nil: the role may not know
	conninfoFile    string   // where primary_conninfo is set, where the role may know
	awaited         []string // in synchronized_standby_slots, without such a slot there
	physical        []string // slots for standbys
	above           string   // the standby with the slot slotName, another one asked; "": none has
}

// judge says how a failover to the server would find the slot.
func (p original) judge(s standing) Candidate {
	switch {
	case s.instance == p.instance && s.server.SystemID == p.server.SystemID:
		return Candidate{State: CandidatePrimary, Text: "is the slot's own server"}
	case s.server.SystemID != p.server.SystemID:
		return Candidate{State: CandidateApart, Text: fmt.Sprintf("is another cluster, with system identifier %s, and no standby of %s", s.server.SystemID, p.server.SystemID),
			Remedy: "take it out of source.url and source.standbys"}
	case !s.server.InRecovery:
		return Candidate{State: CandidateApart, Text: fmt.Sprintf("takes writes itself, on timeline %d, beside the slot's server on timeline %d", s.server.Timeline, p.server.Timeline),
			Remedy: "stop the one that is not the primary, and make it a standby (pg_rewind), or build it anew"}
	case s.server.Major() < 17:
		return p.uncopied(s)
	case s.exists && !s.slot.Synced && !p.exists:
		return p.left(s)
	case s.exists && !s.slot.Synced:
		return p.unmarked(s)
	case s.exists:
		return p.copied(s)
	}
	text, remedy := p.reason(s)
	return Candidate{State: CandidateMissing, Text: "has no copy of the slot: " + text, Remedy: remedy}
}

// uncopied is a standby too old to copy slots.
func (p original) uncopied(s standing) Candidate {
	c := Candidate{State: CandidateUnsupported,
		Text:   fmt.Sprintf("has no copy of the slot, as PostgreSQL %d copies none to standbys: after a failover to it the connector ends with exit code 3", s.server.Major()),
		Remedy: "have Patroni keep the slot (docs/how-to/patroni.md), or upgrade to PostgreSQL 17 or later"}
	if !s.exists {
		return c
	}
	c.Text = fmt.Sprintf("has a slot of that name, %s; PostgreSQL %d does not move it on, so a tool such as Patroni must", p.behind(s, &c), s.server.Major())
	if s.patroni {
		c.Remedy = ""
	}
	return c
}

// left is the slot on the former primary, if the new primary had no copy: nothing
// else has everything committed since.
func (p original) left(s standing) Candidate {
	return Candidate{State: CandidateBlocked,
		Text: fmt.Sprintf("has the slot, confirmed up to %s, and the primary has none: what was committed since can be read there only", s.slot.ConfirmedFlush),
		Remedy: "if it was read before, make that server the primary again, and start the connector: nothing is lost. Only if it never was, or once the gap is accepted, on that server: " +
			"SELECT pg_drop_replication_slot(" + pgsql.Literal(s.slot.Name) + ");"}
}

// unmarked is a slot of the same name on the server, but not a copy.
func (p original) unmarked(s standing) Candidate {
	c := Candidate{State: CandidateBlocked}
	behind := p.behind(s, &c)
	if s.patroni && (!s.syncs || !p.slot.Failover) {
		c.State, c.Text = CandidateReady, "has a slot that Patroni moves on, "+behind
		return c
	}
	c.Text = "has a slot of that name that is no copy, " + behind + ", as the former primary has after a switchover: it keeps the copy away, and holds log and dead rows"
	c.Remedy = "on that server, a standby: SELECT pg_drop_replication_slot(" + pgsql.Literal(s.slot.Name) + "); "
	if hindrance, remedy := p.hindrance(s); hindrance != "" {
		c.Text += "; nor would the copy come without it: " + hindrance
		c.Remedy += "then " + remedy
	} else {
		c.Remedy += "the copy then comes by itself"
	}
	if s.slot.Active {
		c.Remedy = fmt.Sprintf("stop the process that reads it there (pid %d); then ", s.slot.ActivePID) + c.Remedy
	}
	return c
}

// copied is a server's own copy of the slot.
func (p original) copied(s standing) Candidate {
	var c Candidate
	behind := p.behind(s, &c)
	hindrance, remedy := p.hindrance(s)
	lost, isLost := s.slot.Lost()
	switch {
	case isLost:
		c.State, c.Text = CandidateInvalidated, fmt.Sprintf("has a copy of the slot that is invalidated (%s)", lost)
		c.Remedy = "wait until the server makes a new one" + askTheServer
	case s.slot.Temporary:
		c.State, c.Text = CandidateTemporary, "has a copy of the slot that is temporary, and gone after a promotion, until the slot moves on"+s.skipped()
		c.Remedy = "let the connector run; on an idle primary: SELECT pg_log_standby_snapshot();"
	case hindrance != "":
		c.State, c.Text, c.Remedy = CandidateStale, "has a copy of the slot, "+behind+", that is not moved on: "+hindrance, remedy
	case len(s.awaited) > 0:
		c.State, c.Text = CandidateHeld, fmt.Sprintf("has a copy of the slot, but would send nothing after a promotion: its synchronized_standby_slots names %s, which it does not have", strings.Join(s.awaited, ", "))
		c.Remedy = "on that server: SELECT pg_create_physical_replication_slot(" + pgsql.Literal(s.awaited[0]) + ", true); for the standby that will read it; " +
			"or name the slots that it has: ALTER SYSTEM SET synchronized_standby_slots = '…'; SELECT pg_reload_conf();"
	default:
		c.State, c.Text = CandidateReady, "has a copy of the slot, "+behind+s.skipped()
	}
	return c
}

// skipped says why the last synchronisation left the copy as it was (19); "" if
// it did not.
func (s standing) skipped() string {
	switch s.slot.SyncSkipped {
	case "", "none":
		return ""
	}
	return "; its last synchronisation was skipped: " + s.slot.SyncSkipped
}

// behind notes the distance of the server's slot, and says it.
func (p original) behind(s standing, c *Candidate) string {
	bytes := max(0, int64(p.slot.ConfirmedFlush)-int64(s.slot.ConfirmedFlush))
	c.Behind = &bytes
	return fmt.Sprintf("%d bytes of log behind", bytes)
}

// askTheServer is how to find out why there is no copy.
const askTheServer = "; if it does not come, that server's log says why, and so does, as a role with REPLICATION: SELECT pg_sync_replication_slots();"

// reason says why there is no copy. A slot still missing has no remedy.
func (p original) reason(s standing) (text, remedy string) {
	text, remedy = p.hindrance(s)
	switch {
	case text != "":
		return text, remedy
	case !p.exists:
		return "there is no slot to copy yet", ""
	case s.dbname == nil:
		return "it has not come yet, or primary_conninfo has no dbname, which this role may not see", "wait a moment" + askTheServer
	}
	return "it has not come yet", "wait a moment" + askTheServer
}

// hindrance is the setting against making or moving a copy, "" for none.
func (p original) hindrance(s standing) (text, remedy string) {
	set := func(name, value string) string {
		return "on that server: ALTER SYSTEM SET " + name + " = " + value + "; SELECT pg_reload_conf();"
	}
	switch {
	case p.exists && !p.slot.Failover:
		return "the primary's is no failover slot", MakeFailoverSlot(p.slot)
	case !s.server.WALSuffices():
		return "wal_level is " + s.server.WALLevel + " there", "on that server: ALTER SYSTEM SET wal_level = 'logical'; and restart it"
	case !s.syncs:
		return "sync_replication_slots is off there", set("sync_replication_slots", "on")
	case !s.feedback:
		return "hot_standby_feedback is off there", set("hot_standby_feedback", "on")
	case s.slotName == "":
		return "primary_slot_name is empty there", "on the primary: SELECT pg_create_physical_replication_slot('…', true); " + set("primary_slot_name", "'…'")
	case !slices.Contains(p.physical, s.slotName) && s.above != "":
		return fmt.Sprintf("it reads the log of another standby, %s, which has slot %q, its primary_slot_name, and PostgreSQL copies slots from the primary only", s.above, s.slotName),
			"have it read the primary's log (primary_conninfo, and a slot there in primary_slot_name), or fail over to " + s.above
	case !slices.Contains(p.physical, s.slotName):
		return fmt.Sprintf("the primary has no slot %q, its primary_slot_name", s.slotName),
			"if it reads the primary's log, on the primary: SELECT pg_create_physical_replication_slot(" + pgsql.Literal(s.slotName) + ", true); PostgreSQL copies no slot to a standby of a standby"
	case s.dbname != nil && !*s.dbname:
		add := "add it, as it is otherwise: " + set("primary_conninfo", "'… dbname="+p.server.Database+"'")
		if s.conninfoFile != "" && path.Base(s.conninfoFile) != "postgresql.auto.conf" { // takes precedence over later writes of a tool
			add = "on that server, add dbname=" + p.server.Database + " to it in " + s.conninfoFile + "; then SELECT pg_reload_conf();"
		}
		return "its primary_conninfo has no dbname", add + " (a tool that writes primary_conninfo may take it out again: docs/how-to/patroni.md)"
	}
	return "", ""
}

// MakeFailoverSlot makes a slot a slot for standbys to copy.
func MakeFailoverSlot(slot Slot) string {
	return "set source.failover to always, and restart the connector; or, while nobody reads the slot: psql 'dbname=" + slot.Database + " replication=database' -c '" + alterFailover(slot.Name) + "'"
}
