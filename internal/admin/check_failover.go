package admin

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
)

// failover looks at every server a failover may go to. None of the other checks
// needs the standbys, so the look has a separate limit. A fault there harms
// nothing before a failover: it is a warning.
func (d *doctor) failover(ctx context.Context) {
	const name = "failover"
	if d.server == nil || d.server.InRecovery || !d.slotKnown {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	list, err := readCandidates(ctx, d.conn, d.cfg)
	switch {
	case err != nil:
		d.fail(name, err)
	case len(list) == 0:
		d.followers(ctx)
	}
	if d.slot != nil && d.server.Major() >= 17 && !d.slot.Failover && !slices.ContainsFunc(list, catalog.Candidate.Ready) {
		d.notFailover(name)
	}
	for _, c := range list {
		outcome := OK
		if c.Remedy != "" {
			outcome = Warn
		}
		d.add(name, outcome, c.String(), c.Remedy)
	}
}

// notFailover reports a slot without copies.
func (d *doctor) notFailover(name string) {
	if d.cfg.Source.Failover == config.FailoverAlways {
		d.ok(name, "slot %q is no failover slot yet; the next start of run makes it one", d.slot.Name)
		return
	}
	d.warn(name, catalog.MakeFailoverSlot(*d.slot), "slot %q is no failover slot: no standby has a copy of it, and after a failover the connector ends with exit code 3", d.slot.Name)
}

// readCandidates looks at the servers in the configuration; a single server has
// no candidates.
func readCandidates(ctx context.Context, conn *pgx.Conn, cfg *config.Config) ([]catalog.Candidate, error) {
	candidates, err := catalog.FindCandidates(ctx, cfg.Source.URL.Reveal(), cfg.Source.Standbys)
	if err != nil || !candidates.Several() {
		return nil, err
	}
	return candidates.Read(ctx, conn, cfg.Source.Slot)
}

// followers looks for standbys outside the configuration.
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
