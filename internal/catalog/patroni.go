package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Patroni tells whether Patroni manages the server: the sessions have the name,
// visible to every role ("Patroni" up to 3, "Patroni heartbeat" and "Patroni
// restapi" from 4 on). patronictl, for anybody, has another.
func Patroni(ctx context.Context, conn *pgx.Conn) (manages bool, err error) {
	err = conn.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM pg_stat_activity
		                WHERE application_name IN ('Patroni', 'Patroni heartbeat', 'Patroni restapi'))`).Scan(&manages)
	if err != nil {
		return false, fmt.Errorf("look for Patroni: %w", err)
	}
	return manages, nil
}

// PatroniDrops is Patroni's treatment of slots unknown to the configuration.
// From 4.1 on, failover slots (PostgreSQL 17) are spared.
const PatroniDrops = "Patroni manages this cluster, and drops a logical slot that its configuration does not name once nobody reads it, at a restart or switchover within a moment"

// PatroniKeeps is how Patroni learns of a slot. Patroni then creates the slot
// where missing, and copies the slot to the standbys.
func PatroniKeeps(slot, database string) string {
	return fmt.Sprintf("name the slot in Patroni's configuration (patronictl edit-config), if it is not there: slots: {%s: {type: logical, database: %q, plugin: %s}}", slot, database, Plugin)
}
