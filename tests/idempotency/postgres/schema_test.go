package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

func fatal(p storage.Problem) bool { return p.Fatal }

func TestTableNames(t *testing.T) {
	for _, bad := range []string{".", "a.", ".a", "a.b.c", strings.Repeat("x", 51)} {
		if ddl, err := postgres.Schema(postgres.Options{Table: bad}); err == nil {
			t.Errorf("Schema(%q): %s", bad, ddl)
		}
		if _, err := postgres.New(nil, postgres.Options{Table: bad}); err == nil {
			t.Errorf("New with table %q: no error", bad)
		}
	}
}

func TestDDLCanBeRepeated(t *testing.T) {
	for _, o := range []postgres.Options{{}, {Table: "Other", Partitioned: true}} {
		pool := database(t, o)
		create(t, pool, o)
		if problems, err := newStore(t, pool, o).Check(limited(t)); err != nil || slices.ContainsFunc(problems, fatal) {
			t.Errorf("%+v: %v, %v", o, problems, err)
		}
	}
}

// Whatever the id, the client computes the partition of the table's check.
func FuzzSlot(f *testing.F) {
	for _, id := range []string{
		"0190163d-8694-739b-aea5-966c26f8ad90", "0190163D-8694-739B-AEA5-966C26F8AD90", "0190163d-8694-439b-aea5-966c26f8ad90",
		"ffffffff-ffff-7fff-ffff-ffffffffffff", "00000000-0000-7000-0000-000000000000", "0190163d8694739baea5966c26f8ad90",
		"order-1", "0190163d-8694-739b-aea5-966c26f8ad9g", "0190163d-8694-739b-aea5-966c26f8ad90\n", "ä190163d-8694-739b-aea5-966c26f8ad9",
	} {
		f.Add(id)
	}
	o := postgres.Options{Partitioned: true}
	pool := database(f, o)
	s := newStore(f, pool, o)
	f.Fuzz(func(t *testing.T, id string) {
		k := key(id)
		if k.Validate() != nil {
			return
		}
		states := []storage.State{storage.Processing}
		claim(t, s, k, request())
		if n, err := s.Purge(limited(t), storage.Filter{Scope: k.Scope, ID: id, States: states}); n != 1 || err != nil {
			t.Errorf("purge %q: %d, %v", id, n, err)
		}
	})
}

// The table refuses a key in another key's partition.
func TestWrongPartition(t *testing.T) {
	pool := database(t, postgres.Options{Partitioned: true})
	_, err := pool.Exec(limited(t), `INSERT INTO idempotency_keys
		(slot, scope, id, state, fingerprint, owner, fence, attempts, reason, updated_at, expires_at)
		VALUES (3, 'test', 'order-1', 'processing', '', '', 1, 1, '', now(), now())`)
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "23514" {
		t.Errorf("a wrong slot: %v, want a violated check", err)
	}
}

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		options postgres.Options
		before  string
		want    string // in a problem
	}{
		"fine":            {},
		"missing":         {before: `DROP TABLE idempotency_keys`, want: `apply Schema(Options{Table: "", Partitioned: false})`},
		"column":          {before: `ALTER TABLE idempotency_keys DROP COLUMN reason`, want: "no column reason text"},
		"type":            {before: `ALTER TABLE idempotency_keys ALTER attempts TYPE bigint`, want: "no column attempts integer"},
		"key":             {before: `ALTER TABLE idempotency_keys DROP CONSTRAINT idempotency_keys_pkey`, want: "is (), not (id, scope)"},
		"not partitioned": {options: postgres.Options{Partitioned: true}, want: "no column slot smallint"},
		"rights": {before: `DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'keys_reader')
			THEN CREATE ROLE keys_reader; END IF; END $$; GRANT SELECT ON idempotency_keys TO keys_reader;
			ALTER ROLE postgres IN DATABASE {db} SET role = 'keys_reader'`, want: "GRANT INSERT, UPDATE ON"},
		"unlogged": {before: `ALTER TABLE idempotency_keys SET UNLOGGED`, want: "SET LOGGED"},
		"hidden": {before: `DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'keys_writer')
			THEN CREATE ROLE keys_writer; END IF; END $$; GRANT SELECT, INSERT, UPDATE ON idempotency_keys TO keys_writer;
			ALTER TABLE idempotency_keys ENABLE ROW LEVEL SECURITY;
			ALTER ROLE postgres IN DATABASE {db} SET role = 'keys_writer'`, want: "DISABLE ROW LEVEL SECURITY"},
		"read only":   {before: `ALTER DATABASE {db} SET default_transaction_read_only = on`, want: "connect to the primary"},
		"not durable": {before: `ALTER DATABASE {db} SET synchronous_commit = off`, want: "synchronous_commit is off"},
	} {
		t.Run(name, func(t *testing.T) {
			url := newDatabase(t)
			first := connect(t, url)
			create(t, first, postgres.Options{})
			if c.before != "" {
				exec(t, first, strings.ReplaceAll(c.before, "{db}", query[string](t, first, `SELECT current_database()::text`)))
			}
			problems, err := newStore(t, connect(t, url), c.options).Check(limited(t))
			if got := fmt.Sprint(problems); err != nil || !strings.Contains(got, c.want) {
				t.Errorf("%s, %v; want %q", got, err, c.want)
			}
			if want := c.want != "" && name != "not durable" && name != "unlogged"; want != slices.ContainsFunc(problems, fatal) {
				t.Errorf("fatal: %v", problems)
			}
		})
	}
	t.Run("forms", func(t *testing.T) {
		url := newDatabase(t)
		create(t, connect(t, url), postgres.Options{})
		simple := connect(t, url+"?default_query_exec_mode=simple_protocol&bytea_output=escape")
		problems, err := newStore(t, simple, postgres.Options{}).Check(limited(t))
		if err != nil || !strings.Contains(fmt.Sprint(problems), "bytea_output = 'hex'") {
			t.Errorf("%v, %v", problems, err)
		}
	})
	t.Run("partitioned", func(t *testing.T) {
		pool := database(t, postgres.Options{Partitioned: true})
		problems, err := newStore(t, pool, postgres.Options{}).Check(limited(t))
		if err != nil || !slices.ContainsFunc(problems, fatal) || !strings.Contains(fmt.Sprint(problems), "set Options.Partitioned") {
			t.Errorf("%v, %v", problems, err)
		}
	})
}

// A database not in UTF8 has no form of some characters of a failure.
func TestAFailureWhoseTextTheDatabaseCannotHold(t *testing.T) {
	server := pgtest.Shared(t)
	server.Exec(t, `CREATE DATABASE keys_latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0`)
	t.Cleanup(func() { server.Exec(t, `DROP DATABASE keys_latin WITH (FORCE)`) })
	pool := connect(t, server.URL("keys_latin")+"?client_encoding=UTF8")
	create(t, pool, postgres.Options{})
	store := newStore(t, pool, postgres.Options{})
	key := storage.Key{Scope: "test", ID: "1"}
	claim, err := store.Claim(t.Context(), key, storage.ClaimRequest{Owner: "a", Lease: time.Minute, Retention: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Fail(t.Context(), claim.Lease, storage.Failure{Reason: "no 茶 today", RetryAfter: time.Minute, Retention: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if record, err := store.Inspect(t.Context(), key); err != nil || record.Reason != "no ? today" || record.State != storage.Retryable {
		t.Errorf("%+v, %v", record, err)
	}
}
