package store

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

func postgresPlace(t *testing.T) place {
	return postgresAt(pgtest.Shared(t).NewDatabase(t), "cdc_outbox_checkpoints")
}

func postgresAt(url, table string) place {
	open := func(t *testing.T, key string) checkpoint.Store {
		return must.Get(NewPostgres(limited(t), url, table, key))(t)
	}
	return place{
		open: open,
		write: func(t *testing.T, key, value string) {
			open(t, key).Close() // creates the table
			exec(t, url, `INSERT INTO `+table+` VALUES ($1, 1, $2) ON CONFLICT (key) DO UPDATE SET checkpoint = $2`, key, value)
		},
	}
}

func exec(t *testing.T, url, sql string, args ...any) {
	t.Helper()
	conn := must.Get(pgx.Connect(limited(t), url))(t)
	defer conn.Close(limited(t))
	must.Get(conn.Exec(limited(t), sql, args...))(t)
}

func TestPostgresTableNames(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t)
	exec(t, url, `CREATE SCHEMA "My Schema"`)
	for name, table := range map[string]string{
		"plain": "checkpoints", "folded": "CheckPoints2", "schema": "public.checkpoints3",
		"quoted": `"My Schema"."Prüf""punkte"`,
	} {
		t.Run(name, func(t *testing.T) {
			p := postgresAt(url, table)
			save(t, p.store(t, "a"), sample(1))
			wantLoad(t, p.store(t, "a"), sample(1))
		})
	}
	_, err := NewPostgres(limited(t), url, `x; drop table y`, "a")
	if failure.ClassOf(err) != failure.Config {
		t.Errorf("a name that is none: %v, want a configuration error", err)
	}
}

// Failure mode 24: an ended connection is opened again, with the password rotated
// on disk in between.
func TestPostgresReadsThePasswordFileEachTime(t *testing.T) {
	server := pgtest.Shared(t)
	admin := server.NewDatabase(t)
	server.Exec(t, `CREATE ROLE checkpoint_rotated LOGIN SUPERUSER`)
	t.Cleanup(func() { server.Exec(t, `DROP ROLE checkpoint_rotated`) })
	file := filepath.Join(t.TempDir(), "pgpass")
	rotate := func(password string) {
		exec(t, admin, `ALTER ROLE checkpoint_rotated PASSWORD '`+password+`'`)
		must.OK(t, os.WriteFile(file, []byte("*:*:*:*:"+password+"\n"), 0o600))
	}
	rotate("first")
	u := must.Get(url.Parse(withParameter(t, admin, "passfile", file)))(t)
	u.User = url.User("checkpoint_rotated")
	s := postgresAt(u.String(), "rotated").store(t, "a")
	save(t, s, sample(1))
	rotate("second")
	exec(t, admin, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE application_name = 'cdc-outbox checkpoint' AND datname = current_database()`)
	save(t, s, sample(2))
	wantLoad(t, s, sample(2))
	exec(t, admin, `ALTER TABLE rotated OWNER TO CURRENT_USER`) // the role goes before the database
}

// withParameter returns the URL with one more parameter.
func withParameter(t *testing.T, to, name, value string) string {
	t.Helper()
	u := must.Get(url.Parse(to))(t)
	query := u.Query()
	query.Set(name, value)
	u.RawQuery = query.Encode()
	return u.String()
}

func TestPostgresRoleWithoutRights(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t)
	exec(t, url, `REVOKE CREATE ON SCHEMA public FROM PUBLIC`)
	exec(t, url, `DROP ROLE IF EXISTS checkpoint_reader`)
	exec(t, url, `CREATE ROLE checkpoint_reader`)
	p := &postgres{url: withParameter(t, url, "role", "checkpoint_reader"), key: "a", busy: make(chan struct{}, 1)}
	defer p.Close()
	open := func() error {
		return p.do(t.Context(), func(c *pgx.Conn) error { return p.ensureTable(t.Context(), c, "checkpoints") })
	}

	if err := open(); failure.ClassOf(err) != failure.Config || failure.RemedyOf(err) == "" {
		t.Errorf("no right to create: %v, want a configuration error with a remedy", err)
	}
	postgresAt(url, "checkpoints").store(t, "a") // created by an administrator
	exec(t, url, `GRANT SELECT, INSERT, UPDATE ON checkpoints TO checkpoint_reader`)
	if err := open(); err != nil {
		t.Fatalf("the table exists, but: %v", err)
	}
	save(t, p, sample(1))
	wantLoad(t, p, sample(1))
}

// A new session loads while the checkpointer saves.
func TestPostgresLoadBesideASave(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t)
	s := postgresAt(url, "checkpoints").store(t, "a")
	save(t, s, sample(1))
	conn := must.Get(pgx.Connect(t.Context(), url))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	must.Get(conn.Exec(t.Context(), "BEGIN; LOCK TABLE checkpoints IN SHARE MODE"))(t)
	saved := make(chan error, 1)
	go func() { saved <- s.Save(limited(t), sample(2)) }()
	const waits = "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	for blocked := false; !blocked; {
		must.OK(t, conn.QueryRow(limited(t), waits).Scan(&blocked))
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := s.Load(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Load beside the save = %v, want it to wait", err)
	}
	must.Get(conn.Exec(t.Context(), "ROLLBACK"))(t)
	if err := <-saved; err != nil {
		t.Errorf("Save = %v", err)
	}
	wantLoad(t, s, sample(2))
}

const storeSessions = `datname = current_database() AND application_name = 'cdc-outbox checkpoint'`

// If an abandoned save takes effect when the server process or the network comes
// to, it does not set back later saves: the slot is confirmed up to them.
func TestPostgresSaveThatWasGivenUpComesLate(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).NewDatabase(t)
	s := postgresAt(url, "checkpoints").store(t, "a")
	save(t, s, sample(1))
	thaw := pgtest.Freeze(t, url, storeSessions)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := s.Save(ctx, sample(2)); err == nil {
		t.Fatal("the frozen server answered")
	}
	save(t, s, sample(3))
	thaw()
	conn := must.Get(pgx.Connect(limited(t), url))(t)
	defer conn.Close(limited(t))
	late := true
	for late { // limited ends the loop
		must.OK(t, conn.QueryRow(limited(t), `SELECT count(*) > 1 FROM pg_stat_activity WHERE `+storeSessions).Scan(&late))
	}
	wantLoad(t, s, sample(3))
}

// The error of a locked table names the lock.
func TestPostgresSaveIntoALockedTable(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).NewDatabase(t)
	s := postgresAt(withParameter(t, url, "lock_timeout", "100"), "checkpoints").store(t, "a")
	save(t, s, sample(1))
	conn := must.Get(pgx.Connect(limited(t), url))(t)
	defer conn.Close(limited(t))
	must.Get(conn.Exec(limited(t), `BEGIN; LOCK TABLE checkpoints`))(t)
	if err := s.Save(context.WithoutCancel(t.Context()), sample(2)); pgsql.State(err) != pgerrcode.LockNotAvailable {
		t.Errorf("Save = %v", err)
	}
	must.Get(conn.Exec(limited(t), `ROLLBACK`))(t)
	save(t, s, sample(2))
	wantLoad(t, s, sample(2))
}

// Failure mode 66: a role that may create in a schema of search_path made the table
// first. The trigger would act as the connector's role.
func TestPostgresTableOfSomebodyElse(t *testing.T) {
	database := pgtest.Shared(t).NewDatabase(t)
	conn := must.Get(pgx.Connect(limited(t), database))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	exec := func(sql string) { t.Helper(); must.Get(conn.Exec(limited(t), sql))(t) }
	for _, role := range []string{"stranger", "connector", "operator"} {
		exec(`CREATE ROLE ` + role + ` LOGIN PASSWORD 'pw'`)
	}
	t.Cleanup(func() {
		for _, role := range []string{"stranger", "connector", "operator"} {
			_, _ = conn.Exec(context.Background(), `DROP OWNED BY `+role)
			_, _ = conn.Exec(context.Background(), `DROP ROLE `+role)
		}
	})
	exec(`GRANT CREATE ON SCHEMA public TO stranger, connector, operator`)
	exec(`DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO operator', current_database()); END $$`)
	parsed := must.Get(url.Parse(database))(t)
	parsed.User = url.UserPassword("connector", "pw")
	for owner, trusted := range map[string]bool{"stranger": false, "connector": true, "operator": true, "postgres": true} {
		exec(TableSQL(`cp_` + owner))
		exec(`ALTER TABLE cp_` + owner + ` OWNER TO ` + owner)
		exec(`GRANT SELECT, INSERT, UPDATE ON cp_` + owner + ` TO PUBLIC`)
		s, err := NewPostgres(limited(t), parsed.String(), "cp_"+owner, "k")
		if err == nil {
			s.Close()
		}
		if (err == nil) != trusted || err != nil && (failure.ClassOf(err) != failure.Config || !strings.Contains(err.Error(), "belongs to role") || failure.RemedyOf(err) == "") {
			t.Errorf("a table of %s: %v", owner, err)
		}
	}
}

// A role without a search path, or read-only by default, has the checkpoint in
// public, and check agrees with run.
func TestPostgresWhateverTheRoleHasSet(t *testing.T) {
	server := pgtest.Shared(t)
	server.Exec(t, `CREATE ROLE checkpoint_settings LOGIN PASSWORD 'pw'`)
	for i, settings := range []string{
		`SET search_path = ''`, `SET search_path = 'pg_catalog'`, `SET search_path = 'nosuch'`, `SET default_transaction_read_only = on`,
	} {
		t.Run(settings, func(t *testing.T) {
			to := server.NewDatabase(t)
			exec(t, to, `GRANT CREATE ON SCHEMA public TO checkpoint_settings`)
			exec(t, to, `ALTER ROLE checkpoint_settings RESET ALL`)
			exec(t, to, `ALTER ROLE checkpoint_settings `+settings)
			u := must.Get(url.Parse(to))(t)
			u.User = url.UserPassword("checkpoint_settings", "pw")
			s := postgresAt(u.String(), "settings").store(t, "a")
			must.OK(t, s.(*postgres).mayWrite(t.Context(), false))
			save(t, s, sample(uint64(i+1)))
			wantLoad(t, s, sample(uint64(i+1)))
			exec(t, to, `SELECT FROM public.settings WHERE key = 'a'`)
			exec(t, to, `DROP OWNED BY checkpoint_settings`)
		})
	}
	server.Exec(t, `DROP ROLE checkpoint_settings`)
}
