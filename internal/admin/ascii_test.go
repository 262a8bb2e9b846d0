package admin

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// A database need not be in UTF-8: setup's own SQL is ASCII.
func TestSetupInOtherEncodings(t *testing.T) {
	server := pgtest.Shared(t)
	for _, encoding := range []string{"LATIN1", "KOI8R", "SQL_ASCII", "EUC_JP"} {
		for _, mode := range []string{config.ModeWAL, config.ModeMessage, config.ModePoll} {
			t.Run(encoding+" "+mode, func(t *testing.T) {
				name := "in_" + strings.ToLower(encoding) + "_" + mode
				server.Exec(t, `CREATE DATABASE `+name+` ENCODING '`+encoding+`' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'`)
				f := newFixture(t, server.URL(name))
				t.Cleanup(func() {
					f.exec(`SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()`)
					catalog.Close(f.conn)
					server.Exec(t, `DROP DATABASE `+name+` WITH (FORCE)`)
				})
				f.Source.Mode = mode
				f.setup()
			})
		}
	}
}

// REVOKE CONNECT … FROM PUBLIC: setup gives the role the right, and a role
// without the right is told so.
func TestRoleThatMayNotConnect(t *testing.T) {
	f := empty(t)
	const role = "unconnected"
	f.exec(`CREATE ROLE `+role+` LOGIN REPLICATION PASSWORD 'pw'`,
		`DO $$ BEGIN EXECUTE format('REVOKE CONNECT ON DATABASE %I FROM PUBLIC', current_database()); END $$`)
	t.Cleanup(func() { f.exec(`DROP OWNED BY `+role, `DROP ROLE `+role) })
	u := must.Get(url.Parse(f.Source.URL.Reveal()))(t)
	u.User = url.UserPassword(role, "pw")
	connect := func() error {
		conn, err := catalog.Connect(context.WithoutCancel(f.ctx()), u.String())
		catalog.Close(conn)
		return err
	}
	if remedy := failure.RemedyOf(connect()); !strings.Contains(remedy, `GRANT CONNECT ON DATABASE`) {
		t.Errorf("the remedy is %q", remedy)
	}
	must.Get(Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium, Role: role}))(t)
	must.OK(t, connect())
}
