package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Patroni tells whether Patroni manages the server: the sessions have the name,
// which every role may see ("Patroni" up to 3, "Patroni heartbeat" and "Patroni
// restapi" from 4 on). patronictl, which anybody may run, has another.
func Patroni(ctx context.Context, conn *pgx.Conn) (manages bool, err error) {
	err = conn.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM pg_stat_activity
		                WHERE application_name IN ('Patroni', 'Patroni heartbeat', 'Patroni restapi'))`).Scan(&manages)
	if err != nil {
		return false, fmt.Errorf("look for Patroni: %w", err)
	}
	return manages, nil
}

// PatroniDrops is what Patroni does to a slot the configuration does not name.
// From 4.1 on it spares failover slots, which PostgreSQL has from 17 on.
const PatroniDrops = "Patroni manages this cluster, and drops a logical slot that its configuration does not name once nobody reads it, at a restart or switchover within a moment"

// PatroniKeeps is how Patroni learns of a slot. It then creates the slot where
// missing, and copies it to the standbys.
func PatroniKeeps(slot, database string) string {
	return fmt.Sprintf("name the slot in Patroni's configuration (patronictl edit-config), if it is not there: slots: {%s: {type: logical, database: %q, plugin: %s}}", slot, database, Plugin)
}
