package catalog

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// Failure mode 109. The server lets no slot use pgoutput (14.24, 15.19, 16.15, 17.11 and 18.6).
func TestAServerThatDoesNotAllowThePlugin(t *testing.T) {
	server := pgtest.Start(t)
	url := server.NewDatabase(t)
	conn := connect(t, url)
	if list := must.Get(pluginList(pgtest.Context(t), conn))(t); list == nil {
		t.Skip("this server has no output_plugin_libraries")
	}
	must.OK(t, PluginAllowed(pgtest.Context(t), conn))
	version := must.Get(ReadServer(pgtest.Context(t), conn))(t).Version
	repl := replication(t, url)
	_, _, err := CreateSlot(pgtest.Context(t), repl, "allowed", version, SlotOptions{})
	must.OK(t, err)
	server.Exec(t, `ALTER SYSTEM SET output_plugin_libraries = 'test_decoding'`)
	server.Restart(t, pgtest.Fast)

	conn = connect(t, url)
	_, _, err = CreateSlot(pgtest.Context(t), replication(t, url), "refused", version, SlotOptions{})
	wantAllow := func(err error) {
		t.Helper()
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Routine != routineOutputPlugin {
			t.Errorf("the server reports it in %s", refused.Routine)
		}
		if failure.ClassOf(err) != failure.Config || failure.RemedyOf(err) != AllowPlugin {
			t.Errorf("%v, remedy %q", err, failure.RemedyOf(err))
		}
	}
	wantAllow(err)
	wantAllow(PluginAllowed(pgtest.Context(t), conn))
	_, err = replication(t, url).Exec(pgtest.Context(t), `START_REPLICATION SLOT allowed LOGICAL 0/0 (proto_version '1', publication_names 'p')`).ReadAll()
	wantAllow(Classify(err))
}

// Failure mode 178. The role made by setup may not see every setting, and its own
// processes are no standbys, also while they end.
func TestWhatTheConnectorsRoleIsTold(t *testing.T) {
	server := pgtest.Start(t)
	conn := connect(t, server.NewDatabase(t), `CREATE ROLE blind LOGIN REPLICATION`, `SET ROLE blind`)
	must.OK(t, PluginAllowed(pgtest.Context(t), conn))
	replication(t, conn.Config().ConnString())
	if followers := must.Get(ReadFollowers(pgtest.Context(t), conn))(t); followers != 0 {
		t.Errorf("%d standbys of a server that has none", followers)
	}
}
