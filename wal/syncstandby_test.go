package wal

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/sqltext"
)

// The server decides: it gives a streaming walsender a priority if, and only
// if, the setting includes it.
func TestSyncStandbys(t *testing.T) {
	server := pgtest.Start(t, pgtest.Setting("synchronous_commit", "local"))
	for _, tt := range []struct{ setting, application string }{
		{"", "cdc-outbox"},
		{"*", "cdc-outbox"},
		{`"*"`, "cdc-outbox"},
		{"a, b", "cdc-outbox"},
		{`a, "cdc-outbox"`, "cdc-outbox"},
		{`"CDC-Outbox"`, "cdc-outbox"},
		{`a, "cdc-outbox-2"`, "cdc-outbox"},
		{`"first"`, "first"},
		{"FIRST 1 (a, b)", "first"},
		{"FIRST 1 (*)", "first"},
		{"FIRST 2 (a, Connector)", "connector"},
		{"ANY 1 (a, b, *)", "connector"},
		{"any 1 (a, b)", "any"},
		{"1 (a, b)", "b"},
		{"2 (a, b)", "2"},
		{`"a ""b"" (c), d", e`, `a "b" (c), d`},
		{`"(x"`, "x"},
	} {
		t.Run(fmt.Sprintf("%s of %s", tt.application, tt.setting), func(t *testing.T) {
			s := newSource(t, server)
			u, err := url.Parse(s.url)
			if err != nil {
				t.Fatal(err)
			}
			query := u.Query()
			query.Set("application_name", tt.application)
			u.RawQuery = query.Encode()
			s.url, s.sql = u.String(), connect(t, u.String())
			s.exec(t, `ALTER SYSTEM SET synchronous_standby_names = `+sqltext.Literal(tt.setting), `SELECT pg_reload_conf()`)
			s.await(t, `SELECT current_setting('synchronous_standby_names') = $1`, tt.setting)
			stream := s.open(t, 0)
			s.await(t, `SELECT count(flush_lsn) = 1 FROM pg_stat_replication r JOIN pg_replication_slots ON active_pid = pid
				WHERE slot_name = $1 AND r.state = 'streaming'`, s.options.Slot)
			var priority int
			if err := s.sql.QueryRow(pgtest.Context(t), `SELECT sync_priority FROM pg_stat_replication JOIN pg_replication_slots ON active_pid = pid
				WHERE slot_name = $1`, s.options.Slot).Scan(&priority); err != nil {
				t.Fatal(err)
			}
			stream.close(t)
			got, err := catalog.ReadSyncStandbys(pgtest.Context(t), s.sql)
			if err != nil {
				t.Fatal(err)
			}
			if got.Ours() != (priority > 0) {
				t.Errorf("%+v: we say %v, the server gives it priority %d", got, got.Ours(), priority)
			}
		})
	}
}
