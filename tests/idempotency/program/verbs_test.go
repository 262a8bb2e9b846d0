package program

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency/dynamodb"
	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/dynamotest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redistest"
)

// A fault for an operator is code 2, with a remedy and without a secret.
func TestVerbsSayWhatToFix(t *testing.T) {
	redisServer := redistest.Start(t, redistest.Setting("requirepass", "right")).Addr()
	database := pgtest.Shared(t).NewDatabase(t)
	dynamo := "dynamodb://?region=us-east-1&endpoint=http://" + dynamotest.Shared(t).Address
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "xyzzy")
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/nowhere"
	for name, c := range map[string]struct{ store, stderr string }{
		"redis, wrong password": {"redis://:xyzzy@" + redisServer, "give the client the right user name and password"},
		"redis, no password":    {"redis://" + redisServer, "give the client a password"},
		"redis, not a cluster":  {"redis://:right@" + redisServer + "?cluster=true", "cluster support disabled"},
		"postgres, no table":    {database, "make the table by Schema"},
		"postgres, no database": {u.String(), `database "nowhere" does not exist`},
		"dynamodb, no table":    {dynamo, "table"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, verb := range []string{"inspect --id 1", "release --id 1", "purge --yes"} {
				got := execute(t, c.store, append(strings.Fields(verb), "--scope", "s", "--name", "missing")...)
				if got.code != 2 || !strings.Contains(got.stderr, c.stderr) || strings.Contains(got.stderr, "xyzzy") {
					t.Errorf("%s: code %d, stderr %q, want 2 and %q", verb, got.code, got.stderr, c.stderr)
				}
			}
		})
	}
}

// TestVerbs lets an operator loose on each store.
func TestVerbs(t *testing.T) {
	for name, open := range map[string]func(*testing.T) (store storage.Store, url, table string){
		"redis": func(t *testing.T) (storage.Store, string, string) {
			server := redistest.Shared(t)
			store := must.Get(redis.New(server.Client(t), redis.Options{Prefix: "operator"}))(t)
			t.Cleanup(store.Close)
			return store, "redis://" + server.Addr(), "operator"
		},
		"postgres": func(t *testing.T) (storage.Store, string, string) {
			url := pgtest.Shared(t).NewDatabase(t)
			o := postgres.Options{Table: "keys"}
			pgtest.Exec(t, url, must.Get(postgres.Schema(o))(t))
			pool := must.Get(pgxpool.New(t.Context(), url))(t)
			t.Cleanup(pool.Close)
			return must.Get(postgres.New(pool, o))(t), url, o.Table
		},
		"dynamodb": func(t *testing.T) (storage.Store, string, string) {
			server := dynamotest.Shared(t)
			t.Setenv("AWS_ACCESS_KEY_ID", "test")
			t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
			table := server.Table(t)
			store := must.Get(dynamodb.New(server.Client(t), dynamodb.Options{Table: table}))(t)
			return store, "dynamodb://?region=us-east-1&endpoint=http://" + server.Address, table
		},
	} {
		t.Run(name, func(t *testing.T) {
			store, url, table := open(t)
			operate(t, store, url, table)
		})
	}
}

func operate(t *testing.T, store storage.Store, url, table string) {
	key := storage.Key{Scope: "shipping", ID: "o-1"}
	run := func(args string) outcome {
		all := append(strings.Fields(args), "--name", table, "--scope", key.Scope)
		return execute(t, url, all...)
	}
	want := func(args string, code int, texts ...string) {
		t.Helper()
		got := run(args)
		if got.code != code {
			t.Errorf("%s: code %d, stderr %q", args, got.code, got.stderr)
		}
		for _, text := range texts {
			if !strings.Contains(got.stdout+got.stderr, text) {
				t.Errorf("%s: no %q in %q", args, text, got.stdout+got.stderr)
			}
		}
	}

	want("inspect --id o-1", 0, "absent")
	want("release --id o-1", 0, "nothing to release")
	claimed, err := store.Claim(t.Context(), key, storage.ClaimRequest{Owner: "worker", Lease: time.Hour, Retention: 2 * time.Hour})
	if err != nil || claimed.Outcome != storage.Claimed {
		t.Fatalf("Claim = %+v, %v", claimed, err)
	}
	want("inspect --id o-1", 0, "processing", "worker", "lease_until")
	want("release --id o-1", 0, "released", "processing", "worker", "the lease was live")
	if again := run("release --id o-1"); strings.Contains(again.stdout, "live") {
		t.Errorf("release without a lease: %q", again.stdout)
	}
	want("inspect --id o-1", 0, "retryable")
	claimed, err = store.Claim(t.Context(), key, storage.ClaimRequest{Owner: "worker2", Lease: time.Hour, Retention: 2 * time.Hour})
	if err != nil || claimed.Outcome != storage.Claimed || claimed.Attempts != 1 {
		t.Fatalf("Claim after the release = %+v, %v", claimed, err)
	}
	if err := store.Complete(t.Context(), claimed.Lease, []byte("shipped\x1b[2J"), time.Hour); err != nil {
		t.Fatal(err)
	}
	want("inspect --id o-1", 0, "completed", `"shipped\x1b[2J"`)
	var record struct {
		State    string
		Attempts int
	}
	if err := json.Unmarshal([]byte(run("inspect --id o-1 --json").stdout), &record); err != nil || record.State != "completed" || record.Attempts != 1 {
		t.Errorf("as JSON: %+v, %v", record, err)
	}
	want("release --id o-1", 2, "completed", "purge")
	want("purge", 2, "add --yes")
	want("purge --state failed --yes", 0, "purged 0")
	want("purge --older 1h --yes", 0, "purged 0")
	want("purge --yes", 0, "purged 1")
	want("inspect --id o-1", 0, "absent")
}

func TestSweep(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t)
	ddl, err := postgres.Schema(postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, url, ddl+`;
		INSERT INTO idempotency_keys (scope, id, state, fingerprint, owner, fence, attempts, reason, updated_at, expires_at)
		SELECT 's', i::text, 'completed', '', '', i, 1, '', now(), now() + CASE WHEN i <= 3 THEN interval '-1 s' ELSE '1 h' END
		FROM generate_series(1, 5) AS i`)
	run := func(args string) outcome {
		return execute(t, url, strings.Fields(args)...)
	}
	if got := run("sweep --batch 2"); got.code != 0 || got.stdout != "removed 3 messages\n" {
		t.Errorf("%+v", got)
	}
	if got := run("sweep --json"); got.code != 0 || !strings.Contains(got.stdout, `"swept": 0`) {
		t.Errorf("%+v", got)
	}
	if got := run("sweep --name missing"); got.code != 2 || !strings.Contains(got.stderr, "make the table by Schema") {
		t.Errorf("%+v", got)
	}
}
