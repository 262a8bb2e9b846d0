package pgtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// query returns the single text value of a query.
func query(t *testing.T, url, sql string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var got string
	if err := conn.QueryRow(ctx, sql).Scan(&got); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return got
}

func TestSharedServerIsReadyForLogicalReplication(t *testing.T) {
	s := pgtest.Shared(t)
	if got := query(t, s.URL("postgres"), "SHOW wal_level"); got != "logical" {
		t.Errorf("wal_level = %s, want logical", got)
	}
}

func TestNewDatabaseGoesAwayWithItsSlotAndClients(t *testing.T) {
	s := pgtest.Shared(t)
	var (
		name string
		conn *pgx.Conn // stays open while the database is dropped
	)
	t.Run("use", func(t *testing.T) {
		url := s.NewDatabase(t)
		name = query(t, url, "SELECT current_database()")
		pgtest.Exec(t, url, "SELECT pg_create_logical_replication_slot('"+name+"', 'pgoutput')")
		var err error
		if conn, err = pgx.Connect(context.Background(), url); err != nil {
			t.Fatal(err)
		}
	})
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("the client is still connected")
	}
	_ = conn.Close(t.Context())
	left := query(t, s.URL("postgres"), `SELECT (SELECT count(*) FROM pg_database WHERE datname = '`+name+`')
		+ (SELECT count(*) FROM pg_replication_slots WHERE slot_name = '`+name+`') || ' left'`)
	if left != "0 left" {
		t.Errorf("database and slot: %s, want 0 left", left)
	}
}

func TestStartTakesSettingsAndFiles(t *testing.T) {
	s := pgtest.Start(t,
		pgtest.Setting("wal_level", "replica"),
		pgtest.Setting("ident_file", "people.conf"),
		pgtest.File("people.conf", []byte("# nobody\n")),
	)
	if got := query(t, s.URL("postgres"), "SHOW wal_level"); got != "replica" {
		t.Errorf("wal_level = %s, want replica", got)
	}
	if got := query(t, s.URL("postgres"), "SELECT pg_read_file(current_setting('ident_file'))"); got != "# nobody\n" {
		t.Errorf("ident_file holds %q", got)
	}
}

func TestRestartKeepsURLAndCommittedData(t *testing.T) {
	for name, mode := range map[string]pgtest.Mode{"fast": pgtest.Fast, "immediate": pgtest.Immediate} {
		t.Run(name, func(t *testing.T) {
			s := pgtest.Start(t)
			url := s.NewDatabase(t)
			pgtest.Exec(t, url, "CREATE TABLE t (v text)", "INSERT INTO t VALUES ('kept')")
			s.Restart(t, mode)
			if got := query(t, url, "SELECT v FROM t"); got != "kept" {
				t.Errorf("v = %q, want kept", got)
			}
		})
	}
}
