package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Patroni tells whether Patroni manages the server: its sessions have its name,
// which every role may see ("Patroni" up to 3, "Patroni heartbeat" and "Patroni
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

// PatroniDrops is what Patroni does to a slot that its configuration does not
// name. From 4.1 on, failover slots (PostgreSQL 17) are spared.
const PatroniDrops = "Patroni manages this cluster, and drops a logical slot that its configuration does not name once nobody reads it, at a restart or switchover within a moment"

// PatroniKeeps is how Patroni learns of a slot. Patroni then creates the slot
// where it is missing, and copies it to the standbys.
func PatroniKeeps(slot, database string) string {
	return fmt.Sprintf("name the slot in Patroni's configuration (patronictl edit-config), if it is not there: slots: {%s: {type: logical, database: %q, plugin: %s}}", slot, database, Plugin)
}
