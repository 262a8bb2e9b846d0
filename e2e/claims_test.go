package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency/claimcheck"
	"github.com/cdc-outbox/cdc-outbox/idempotency/claimcheck/s3"
	claimtable "github.com/cdc-outbox/cdc-outbox/idempotency/claimcheck/table"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/s3server"
)

// TestE2ELargeValues publishes values larger than Kafka takes. The connector is killed once values
// are kept whose records may not be there, and the store is away for a while: each event comes, in
// order, with its value (failure modes 207, 209).
func TestE2ELargeValues(t *testing.T) {
	for _, tt := range []struct{ store, delivery, mode string }{
		{"s3", "at_least_once", "wal"}, {"s3", "exactly_once", "wal"}, {"table", "at_least_once", "poll"}, {"table", "exactly_once", "message"},
	} {
		t.Run(tt.store+" "+tt.delivery+" "+tt.mode, func(t *testing.T) {
			t.Parallel()
			w := newClaims(t, tt.store, tt.delivery, tt.mode)
			c := startConnector(t, w.config)
			for round := range 3 {
				before := w.kept()
				if round == 1 && w.server != nil {
					c.awaitLog(`"streaming"`)
					must.OK(t, w.server.Server.Close())
					w.insert(10)
					c.awaitLog("waits for the claim store")
					must.OK(t, w.server.Resume(t.Context()))
				} else {
					w.insert(10)
				}
				await.Until(t, "a value kept", func() bool { c.running(); return w.kept() > before })
				c.kill()
				c = startConnector(t, w.config)
			}
			again := w.wantEvents()
			if tt.delivery == "exactly_once" && again > 0 {
				t.Errorf("%d events came again", again)
			}
			c.stop()
		})
	}
}

// claims is a world with a store of large values.
type claims struct {
	t      *testing.T
	db     string
	broker *kafkatest.Broker
	config string
	mode   string // of the source
	store  claimcheck.Store
	server *s3server.Server // nil: a table
	dir    string           // of the bucket
	events int
}

func newClaims(t *testing.T, store, delivery, mode string) *claims {
	w := &claims{t: t, mode: mode, db: pgtest.Shared(t).NewDatabase(t), broker: kafkatest.Start(t, kafkatest.Apache())}
	w.broker.CreateTopic(t, topicOf("order"), 1, nil)
	section := "{store: table, above: 64KiB}"
	if store == "s3" {
		w.server = s3server.ForTest(t)
		w.dir = must.Get(w.server.Bucket("claims"))(t)
		client := must.Get(minio.New(w.server.Addr(), &minio.Options{Creds: credentials.NewStaticV4(s3server.AccessKey, s3server.SecretKey, ""), Region: "us-east-1"}))(t)
		w.store = must.Get(s3.New(client, "claims"))(t)
		section = fmt.Sprintf("{store: s3, above: 64KiB, s3: {endpoint: %q, region: us-east-1, bucket: claims, prefix: outbox/, access_key: %s, secret_key: %s}}",
			w.server.Endpoint(), s3server.AccessKey, s3server.SecretKey)
	} else {
		pool := must.Get(pgxpool.New(t.Context(), w.db))(t)
		t.Cleanup(pool.Close)
		w.store = claimtable.PGX(pool, "")
	}
	w.config = filepath.Join(t.TempDir(), "cdc-outbox.yaml")
	must.OK(t, os.WriteFile(w.config, fmt.Appendf(nil, `
source: {url: "%s", slot: e2e_%d, publication: e2e_claims, mode: %s}
sink: {kafka: {brokers: ["%s"], delivery: %s}}
claim_check: %s
http: {listen: ""}
`, w.db, worlds.Add(1), mode, w.broker.Brokers[0], delivery, section), 0o600))
	setup := exec.CommandContext(t.Context(), binary, "setup", "-c", w.config)
	setup.Env = environment(t)
	if out, err := setup.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return w
}

// insert writes events of a key, every third with a value beyond Kafka's limit.
func (w *claims) insert(n int) {
	for range n {
		fill := 10
		if w.events%3 == 0 {
			fill = 1_500_000
		}
		statement := `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', '1', 'Placed', %s)`
		if w.mode == "message" {
			statement = `SELECT outbox_emit('order', '1', 'Placed', %s)`
		}
		pgtest.Exec(w.t, w.db, fmt.Sprintf(statement, fmt.Sprintf(`jsonb_build_object('n', %d, 'fill', repeat('x', %d))`, w.events, fill)))
		w.events++
	}
}

// kept is the number of values in the store.
func (w *claims) kept() (n int) {
	w.t.Helper()
	if w.server == nil {
		pool := must.Get(pgxpool.New(w.t.Context(), w.db))(w.t)
		defer pool.Close()
		must.OK(w.t, pool.QueryRow(w.t.Context(), `SELECT count(*) FROM cdc_outbox_claims`).Scan(&n))
		return n
	}
	must.OK(w.t, filepath.WalkDir(w.dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			n++
		}
		return nil // a file may be gone by now
	}))
	return n
}

// wantEvents reads until all events have come, each with its value, and the first of each in
// order. It returns how many came again.
func (w *claims) wantEvents() (again int) {
	t := w.t
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(w.broker.Brokers...), kgo.ConsumeTopics(topicOf("order")), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted())))(t)
	defer client.Close()
	var seen []int
	for len(seen) < w.events {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("%d of %d events: %v", len(seen), w.events, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			value := must.Get(claimcheck.Fetch(ctx, w.store, r.Value, r.Headers))(t)
			var event struct {
				N    int
				Fill string
			}
			must.OK(t, json.Unmarshal(value, &event))
			if large := event.N%3 == 0; large != (len(event.Fill) == 1_500_000) || large != (len(r.Value) == 0) {
				t.Errorf("event %d has %d bytes, its record %d", event.N, len(event.Fill), len(r.Value))
			}
			if slices.Contains(seen, event.N) {
				again++
				return
			}
			seen = append(seen, event.N)
		})
	}
	if !slices.IsSorted(seen) {
		t.Errorf("the events came in the order %v", seen)
	}
	return again
}
