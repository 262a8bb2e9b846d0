package admin

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
)

// pollFixture is a fixture in poll mode, on a server without logical
// replication.
func pollFixture(t *testing.T) *fixture {
	t.Helper()
	f := empty(t)
	f.Source.Mode = config.ModePoll
	f.Event.PositionHeaders = false
	f.Checkpoint = store.Options{Store: store.StoreNone}
	return f
}

// widespread is a schema for polls to work with unchanged.
const widespread = `CREATE TABLE outbox (id bigserial PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload jsonb,
	created_at timestamptz NOT NULL DEFAULT now(), published boolean NOT NULL DEFAULT false, published_at timestamptz)`

func TestSetupAndTeardownOfPolling(t *testing.T) {
	for _, schema := range []Schema{SchemaDebezium, SchemaSnake} {
		for _, after := range []string{poll.AfterPublishMark, poll.AfterPublishDelete} {
			t.Run(string(schema)+" "+after, func(t *testing.T) {
				f := pollFixture(t)
				f.Source.Poll.AfterPublish = after
				t.Cleanup(func() { f.exec(`DROP OWNED BY poller`, `DROP ROLE poller`) })
				opts := SetupOptions{Schema: schema, Role: "poller"}
				for _, action := range []string{"created", "exists"} {
					f.wantSetup(opts, "table "+action, "index "+action, "trigger "+action, "role "+action)
				}
				f.exec(`ALTER ROLE poller PASSWORD 'pw'`)
				f.Source.URL = asRole(f.Source.URL, "poller", "pw")
				f.wantNothingWrong()
				if _, exists := f.slot(); exists {
					t.Error("there is a slot")
				}
			})
		}
	}
	f := pollFixture(t)
	f.setup()
	if steps, err := Teardown(f.ctx(), f.Config, false); failure.ClassOf(err) != failure.Config {
		t.Errorf("teardown without --yes: %v, %v", steps, err)
	}
	f.wantTeardown("trigger dropped", "index kept")
	f.wantCheck("notifications public.outbox", Warn, "no trigger")
}

// PostgreSQL refuses to prepare a transaction after a notification. Where applications may
// prepare transactions, setup makes no trigger unless asked, and says so.
func TestSetupLeavesPreparedTransactionsToTheApplication(t *testing.T) {
	server := pgtest.Start(t, pgtest.Setting("max_prepared_transactions", "4"))
	for _, notify := range []bool{false, true} {
		f := newFixture(t, server.NewDatabase(t))
		f.Source.Mode, f.Event.PositionHeaders, f.Checkpoint = config.ModePoll, false, store.Options{Store: store.StoreNone}
		trigger := "left out"
		if notify {
			trigger = "created"
		}
		f.wantSetup(SetupOptions{Schema: SchemaDebezium, Notify: notify}, "table created", "index created", "trigger "+trigger)
		printed := must.Get(Script(f.Config, SetupOptions{Schema: SchemaDebezium}))(t)
		f.exec(printed[strings.LastIndex(printed, "\nDO "):])
		f.wantCheck("notifications public.outbox", Warn, "max_prepared_transactions is not 0")
		f.exec(`BEGIN`)
		f.insert("order", "1", "{}")
		_, err := f.conn.Exec(f.ctx(), `PREPARE TRANSACTION 'theirs'`)
		if refused := err != nil; refused != notify {
			t.Errorf("with the trigger %s, PREPARE TRANSACTION ends with %v", trigger, err)
		}
		if err == nil {
			f.exec(`ROLLBACK PREPARED 'theirs'`)
		}
	}
}

func TestSetupCompletesAWidespreadTable(t *testing.T) {
	f := pollFixture(t)
	f.exec(widespread)
	r := Check(f.ctx(), f.Config)
	finding := wantFinding(t, r, "index public.outbox", Fail, "every poll reads the whole table")
	f.exec(finding.Remedy)
	f.wantSetup(SetupOptions{Schema: SchemaSnake}, "table exists", "index exists", "trigger created")
	f.wantNothingWrong()
}

func TestCheckOfPolling(t *testing.T) {
	f := pollFixture(t)
	f.wantCheck("table public.outbox", Fail, "does not exist")
	f.exec(strings.Replace(widespread, "bigserial", "uuid", 1), `CREATE INDEX ON outbox (created_at) WHERE NOT published`,
		`INSERT INTO outbox VALUES (gen_random_uuid(), NULL, '1', 'Placed', '{}')`)
	r := Check(f.ctx(), f.Config)
	finding := wantFinding(t, r, "order public.outbox", Warn, "when a transaction began")
	wantFinding(t, r, "rows public.outbox", Warn, "null_route")
	if r.Err() != nil {
		t.Errorf("check: %+v", r.Findings)
	}
	remedy, _, _ := strings.Cut(finding.Remedy, "(")
	f.exec(remedy+"()", `ALTER TABLE outbox SET (autovacuum_enabled = off)`)
	r = Check(f.ctx(), f.Config)
	wantFinding(t, r, "order public.outbox", OK, "created_at")
	wantFinding(t, r, "vacuum public.outbox", Warn, "autovacuum is off")

	f.exec(`CREATE ROLE poll_nobody LOGIN PASSWORD 'pw'`, `GRANT SELECT ON outbox TO poll_nobody`)
	t.Cleanup(func() { f.exec(`DROP OWNED BY poll_nobody`, `DROP ROLE poll_nobody`) })
	as := *f.Config
	as.Source.URL = asRole(f.Source.URL, "poll_nobody", "pw")
	finding = wantFinding(t, Check(f.ctx(), &as), "privileges public.outbox", Fail, "may not")
	f.exec(finding.Remedy)
	wantFinding(t, Check(f.ctx(), &as), "privileges public.outbox", OK, "")
	f.exec(`ALTER TABLE outbox ENABLE ROW LEVEL SECURITY`)
	finding = wantFinding(t, Check(f.ctx(), &as), "privileges public.outbox", Fail, "row-level security")
	f.exec(finding.Remedy)
	wantFinding(t, Check(f.ctx(), &as), "privileges public.outbox", OK, "")
}

func TestStatusOfPolling(t *testing.T) {
	f := pollFixture(t)
	if r := Status(f.ctx(), f.Config); failure.ClassOf(r.Err()) != failure.Config {
		t.Errorf("status without a table: %v", r.Err())
	}
	f.setup()
	f.insert("order", "1", `{}`)
	f.exec(`UPDATE outbox SET created_at = now() - interval '1 hour'`)
	r := Status(f.ctx(), f.Config)
	if r.Err() != nil || r.Polling[0].UnpublishedRows != 1 || !strings.Contains(text(t, r), "is the connector running?") {
		t.Errorf("status with a row that waits: %v\n%s", r.Err(), text(t, r))
	}
	if out := text(t, r); len(r.Polling[0].Holders) > 0 || !strings.Contains(out, "unpublished  1, the oldest 1h0m") {
		t.Errorf("status:\n%s", out)
	}
}

func TestTailOfPolling(t *testing.T) {
	f := pollFixture(t)
	f.exec(widespread)
	f.exec(`INSERT INTO outbox (aggregate_type, aggregate_id, payload, published) SELECT 'order', n::text, '{}', n < 3 FROM generate_series(0, 4) n`)
	wantClass(t, Tail(f.ctx(), f.Config, TailOptions{Out: io.Discard, Notes: io.Discard}), failure.Config, "replication slot")
	_, err := AcceptGap(f.ctx(), f.Config, GapOptions{})
	wantClass(t, err, failure.Config, "replication slot")
	var out, notes bytes.Buffer
	must.OK(t, Tail(f.ctx(), f.Config, TailOptions{FromTable: true, Out: &out, Notes: &notes}))
	if notes.String() != "2 rows\n" || !strings.Contains(out.String(), "key 3") || strings.Contains(out.String(), "key 2") {
		t.Errorf("%s%s", out.String(), notes.String())
	}
}

func TestLaneList(t *testing.T) {
	for want, lanes := range map[string][]int{"": nil, "3": {3}, "0-2, 5, 7-8": {0, 1, 2, 5, 7, 8}} {
		if got := laneList(lanes); got != want {
			t.Errorf("laneList(%v) = %q, want %q", lanes, got, want)
		}
	}
}

// Failure mode 108: a query reads generated columns, on every version.
func TestCheckTakesAGeneratedKeyInPollMode(t *testing.T) {
	f := empty(t)
	f.Source.Mode = config.ModePoll
	f.setup()
	f.exec(`ALTER TABLE outbox DROP COLUMN aggregateid, ADD COLUMN aggregateid text GENERATED ALWAYS AS (lower(aggregatetype)) STORED`)
	f.wantCheck("table public.outbox", OK, "unpublished rows")
}

// Without a slot, a verb in need of a slot names the alternative.
func TestNoVerbOfASlotInPollMode(t *testing.T) {
	f := empty(t)
	f.Source.Mode = config.ModePoll
	_, gap := AcceptGap(f.ctx(), f.Config, GapOptions{})
	_, skip := SkipTransaction(f.ctx(), f.Config, 1, false)
	_, adopt := Adopt(f.ctx(), f.Config, AdoptOptions{})
	for err, want := range map[error]string{gap: "marked as published", skip: "errors.on_bad_event", adopt: "nothing to decide",
		Tail(f.ctx(), f.Config, TailOptions{}): "add --from-table"} {
		wantClass(t, err, failure.Config, "source.mode: poll")
		must.Contain(t, failure.RemedyOf(err), want)
	}
}
