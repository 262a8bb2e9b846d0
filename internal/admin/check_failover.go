package admin

import (
	"context"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// failover looks at every server that a failover may go to. None of the others needs
// this, so it has a limit of its own. What is wrong harms nothing before a failover: it
// is a warning.
func (d *doctor) failover(ctx context.Context) {
	const name = "failover"
	if d.server == nil || d.server.InRecovery || !d.slotKnown {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	if d.slot != nil && d.server.Major() >= 17 && !d.slot.Failover {
		d.warn(name, catalog.MakeFailoverSlot(*d.slot), "slot %q is no failover slot: no standby has a copy of it, and after a failover the connector ends with exit code 3", d.slot.Name)
	}
	candidates, err := catalog.FindCandidates(ctx, d.cfg.Source.URL.Reveal(), d.cfg.Source.Standbys)
	if err != nil {
		d.fail(name, err)
		return
	}
	if !candidates.Several() {
		d.followers(ctx)
		return
	}
	list, err := candidates.Read(ctx, d.conn, d.cfg.Source.Slot)
	if err != nil {
		d.fail(name, err)
		return
	}
	for _, c := range list {
		outcome := OK
		if c.Remedy != "" {
			outcome = Warn
		}
		d.add(name, outcome, c.String(), c.Remedy)
	}
}

// followers looks for standbys that nobody has named.
func (d *doctor) followers(ctx context.Context) {
	const name = "failover"
	followers, err := catalog.ReadFollowers(ctx, d.conn)
	switch {
	case err != nil:
		d.fail(name, err)
	case followers > 0:
		d.warn(name, "list all hosts in source.url, with target_session_attrs=read-write, or the others in source.standbys",
			"%d standbys (or backups) read the server's log, and source.url names no other host: whether one has a copy of the slot is not known", followers)
	default:
		d.ok(name, "no standby reads the server's log, and source.url names no other host")
	}
}
