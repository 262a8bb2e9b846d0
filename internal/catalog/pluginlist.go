package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// AllowPlugin is the remedy where the server does not let slots use the plugin.
const AllowPlugin = "add pgoutput to output_plugin_libraries, and keep what is there: ALTER SYSTEM SET output_plugin_libraries = 'pgoutput', 'test_decoding'; SELECT pg_reload_conf();"

// PluginAllowed is nil unless output_plugin_libraries is known to let no slot use the
// plugin. The setting came with 14.24, 15.19, 16.15, 17.11 and 18.6.
func PluginAllowed(ctx context.Context, conn *pgx.Conn) error {
	list, err := pluginList(ctx, conn)
	if err != nil || list == nil || slices.ContainsFunc(strings.Split(*list, ","), func(name string) bool {
		return strings.Trim(name, ` "`) == Plugin
	}) {
		return err
	}
	return failure.Configf(AllowPlugin, "output_plugin_libraries is %q: the server lets no slot use %s", *list, Plugin)
}

// pluginList is the setting, nil where there is none, or where the role may not
// see it (pg_read_all_settings).
func pluginList(ctx context.Context, conn *pgx.Conn) (list *string, err error) {
	err = conn.QueryRow(ctx, `SELECT current_setting('output_plugin_libraries', true)`).Scan(&list)
	if pgsql.State(err) == pgerrcode.InsufficientPrivilege {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read output_plugin_libraries: %w", err)
	}
	return list, nil
}
