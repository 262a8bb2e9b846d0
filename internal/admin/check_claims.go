package admin

import (
	"context"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/claimcheck"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
)

// claims writes a value to the claim store, reads it and deletes it.
func (d *doctor) claims(ctx context.Context) {
	const name = "claims.store"
	keeper, err := wiring.Values(d.cfg, nil)
	switch {
	case err != nil:
		d.fail(name, err)
		return
	case keeper == nil:
		return
	}
	defer keeper.Close()
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	removable, err := keeper.Try(ctx)
	if err != nil {
		d.fail(name, err)
		return
	}
	d.ok(name, "a value can be written and read")
	switch c := &d.cfg.ClaimCheck; {
	case removable != nil:
		d.warn("claims.deletion", failure.RemedyOf(removable), "the value of this check stays: %s", removable)
	case c.Store == claimcheck.StoreTable && c.Retention == 0:
		d.warn("claims.deletion", "set claim_check.retention, to more than the topics' retention",
			"values stay in table %s for good", c.Table.Name)
	}
}

// claimsUnpublished checks that the values kept in the same database are in no publication: each
// would be sent to the connector, which passes it over.
func (d *doctor) claimsUnpublished(ctx context.Context) {
	const name = "claims.publication"
	table, ok := claimsHere(d.cfg)
	if !ok || d.polls() || d.conn == nil {
		return
	}
	var published bool
	err := d.conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_publication_tables WHERE pubname = $1 AND schemaname = $2 AND tablename = $3)`,
		d.cfg.Source.Publication, table.Schema, table.Name).Scan(&published)
	switch {
	case err != nil:
		d.fail(name, err)
	case published:
		d.warn(name, "make publication "+d.cfg.Source.Publication+" one FOR TABLE, of the outbox tables alone",
			"publication %s has table %s, too: each large value is sent to the connector once more, and passed over", d.cfg.Source.Publication, table)
	default:
		d.ok(name, "table %s is not published", table)
	}
}
