package poll_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

func TestWidespreadSchemasWorkAsTheyAre(t *testing.T) {
	for name, ddl := range map[string][]string{
		"serial":          {serialOutbox, serialIndex},
		"serial no index": {serialOutbox},
		"uuid":            {uuidOutbox},
		"nullable flag": {strings.Replace(serialOutbox, "published boolean NOT NULL DEFAULT", "published boolean DEFAULT", 1),
			`CREATE INDEX ON outbox (id) WHERE published IS NOT TRUE`},
		"text payload": {strings.Replace(serialOutbox, "jsonb", "text", 1), serialIndex},
		"json payload": {strings.Replace(serialOutbox, "jsonb", "json", 1), serialIndex},
		"marked rows move": {strings.Replace(serialOutbox, " PRIMARY KEY", "", 1) + " PARTITION BY LIST (published)",
			`CREATE TABLE outbox_waiting PARTITION OF outbox FOR VALUES IN (false)`,
			`CREATE TABLE outbox_published PARTITION OF outbox FOR VALUES IN (true)`},
		"partitioned": {`CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY, aggregate_type text, aggregate_id text, event_type text, payload jsonb,
			created_at timestamptz NOT NULL DEFAULT now(), published boolean NOT NULL DEFAULT false, published_at timestamptz) PARTITION BY HASH (aggregate_id)`,
			`CREATE TABLE outbox_0 PARTITION OF outbox FOR VALUES WITH (MODULUS 2, REMAINDER 0)`,
			`CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES WITH (MODULUS 2, REMAINDER 1)`, serialIndex},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			w := newWorld(t, nil, ddl...)
			w.series(0, 50, 5)
			in := w.start(nil)
			w.published(50)
			w.series(50, 100, 5)
			w.published(100)
			must.OK(t, in.stop())
			w.wantInOrder(5, 100)
			if n := w.count("published_at IS NULL"); n > 0 {
				t.Errorf("%d rows have no published_at", n)
			}
			if got := len(w.topic.all()); got != 100 {
				t.Errorf("%d records for 100 rows", got)
			}
			w.wantRecord(w.topic.all()[0])
		})
	}
}

// wantInOrder wants of each key the values n, n+keys, … in this order.
func (w *world) wantInOrder(keys, total int) {
	w.t.Helper()
	for k := range keys {
		var want []string
		for n := k; n < total; n += keys {
			want = append(want, fmt.Sprint(n))
		}
		if got := w.topic.values(fmt.Sprint("k", k)); !slices.Equal(got, want) {
			w.t.Errorf("key k%d: %v, want %v", k, got, want)
		}
	}
}

func (w *world) wantRecord(m message) {
	w.t.Helper()
	var created time.Time
	must.OK(w.t, w.conn.QueryRow(w.ctx(), "SELECT created_at FROM outbox WHERE id::text = $1", m.id).Scan(&created))
	rec := m.event.Record
	if rec.Topic != "outbox.event.order" || !m.event.Time().Equal(created) {
		w.t.Errorf("topic %s, time %s, want %s", rec.Topic, m.event.Time(), created)
	}
	var names []string
	for _, h := range rec.Headers {
		names = append(names, h.Key)
	}
	if want := []string{"id", "eventType"}; !slices.Equal(names, want) {
		w.t.Errorf("headers %v, want %v", names, want)
	}
}

// TestQuotedNames has names of tables and columns in need of quotes.
func TestQuotedNames(t *testing.T) {
	w := newWorld(t, nil, `CREATE SCHEMA "My Schema"`,
		`CREATE TABLE "My Schema"."Out ""Box's" ("Id" bigserial PRIMARY KEY, "aggregateType" text, "aggregateId" text, "Type" text, payload jsonb,
			"CreatedAt" timestamptz DEFAULT now(), "is Published" boolean NOT NULL DEFAULT false, "when" timestamptz)`)
	w.parts.Tables = []pg.Table{{Schema: "My Schema", Name: `Out "Box's`}}
	w.parts.Event.ID, w.parts.Event.Key, w.parts.Event.Type, w.parts.Event.Timestamp = "Id", "aggregateId", "Type", "CreatedAt"
	w.parts.Route.By = "aggregateType"
	w.parts.Published, w.parts.PublishedAt = "is Published", "when"
	table := w.parts.Tables[0]
	got := w.read(table)
	w.exec(w.conn, append(got.NotifySQL(w.parts.Notify), got.IndexSQL())...)
	if got := w.read(table); got.Index == "" || len(got.Warnings()) > 0 {
		t.Errorf("index %q, warnings %v", got.Index, got.Warnings())
	}
	w.exec(w.conn, `INSERT INTO "My Schema"."Out ""Box's" ("aggregateType", "aggregateId", "Type", payload) VALUES ('order', 'k0', 'Placed', '0')`)
	w.start(nil)
	w.await("the mark", func() bool {
		var n int
		err := w.conn.QueryRow(w.ctx(), `SELECT count(*) FROM "My Schema"."Out ""Box's" WHERE "is Published" AND "when" IS NOT NULL`).Scan(&n)
		return err == nil && n == 1
	})
	if got := w.topic.values("k0"); !slices.Equal(got, []string{"0"}) {
		t.Errorf("published %v", got)
	}
	w.exec(w.conn, w.read(table).DropNotifySQL()...)
}

func TestPublishedRowsAreDeleted(t *testing.T) {
	w := newWorld(t, nil, `CREATE TABLE outbox (id bigserial PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload jsonb)`)
	w.parts.AfterPublish = poll.AfterPublishDelete
	in := w.start(nil)
	w.series(0, 20, 1)
	w.await("an empty table", func() bool { return w.count("true") == 0 && len(w.topic.all()) == 20 })
	must.OK(t, in.stop())
	w.wantInOrder(1, 20)
}

func TestBacklogIsDrainedInSmallBatches(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, serialIndex)
	w.parts.BatchSize = 7
	w.parts.MaxBufferedBytes = 2000 // a few rows at a time
	w.exec(w.conn, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'order', 'k' || n % 5, 'Placed', n::text::jsonb FROM generate_series(0, 1999) n`)
	in := w.start(nil)
	w.published(2000)
	must.OK(t, in.stop())
	w.wantInOrder(5, 2000)
}

func TestE2EThreeInstancesKeepTheOrderOfKeys(t *testing.T) {
	for _, lanes := range [][]int32{{16, 16, 16}, {16, 7, 1}} { // order does not rest on lanes
		t.Run(fmt.Sprint(lanes), func(t *testing.T) {
			w := newWorld(t, nil, serialOutbox, serialIndex)
			w.parts.BatchSize = 20
			var instances []*instance
			for _, n := range lanes {
				w.parts.Lanes = int(n)
				instances = append(instances, w.start(nil))
			}
			w.series(0, 3000, 9)
			w.published(3000)
			for _, in := range instances {
				must.OK(t, in.stop())
			}
			w.wantInOrder(9, 3000)
			if got := len(w.topic.all()); got != 3000 {
				t.Errorf("%d records for 3000 rows", got)
			}
		})
	}
}

func TestBadEvents(t *testing.T) {
	tooLarge := func(ev *transform.Event) *transform.BadEvent {
		if string(ev.Record.Value) == "3" {
			return &transform.BadEvent{Reason: transform.ReasonRecordTooLarge, Err: fmt.Errorf("too large")}
		}
		return nil
	}
	for _, policy := range []string{transform.BadEventDeadLetter, transform.BadEventSkip, transform.BadEventStop} {
		t.Run(policy, func(t *testing.T) {
			w := newWorld(t, nil, serialOutbox, serialIndex)
			w.parts.OnBadEvent = policy
			w.parts.BatchSize = 100
			w.series(0, 6, 1)
			w.exec(w.conn, `UPDATE outbox SET aggregate_id = NULL WHERE payload = '1'`)
			f := newFault()
			f.reject = tooLarge
			in := w.start(f)
			if policy == transform.BadEventStop {
				w.await("the first event", func() bool { return w.count("published") == 1 })
				if err := in.end(); failure.ClassOf(err) != failure.Config || !strings.Contains(err.Error(), "null_key") {
					t.Errorf("Run = %v, want a configuration error that names null_key", err)
				}
				return
			}
			w.await("all rows", func() bool { return w.count("NOT published") == 0 })
			must.OK(t, in.stop())
			if got := w.topic.values("k0"); !slices.Equal(got, []string{"0", "2", "4", "5"}) {
				t.Errorf("published %v", got)
			}
			letters := 0
			if policy == transform.BadEventDeadLetter {
				letters = 2
			}
			if got := len(w.topic.letters()); got != letters {
				t.Errorf("%d dead letters, want %d", got, letters)
			}
		})
	}
}

func TestWhatAnOperatorMustFixEndsIt(t *testing.T) {
	for name, tt := range map[string]struct{ ddl, remedy string }{
		"no table":     {"SELECT 1", "setup"},
		"view":         {`CREATE VIEW outbox AS SELECT 1 AS id, '' AS aggregate_type, '' AS aggregate_id, '' AS event_type, '' AS payload, false AS published`, "source.tables"},
		"no flag":      {`CREATE TABLE outbox (id bigserial, aggregate_type text, aggregate_id text, event_type text, payload text)`, "ADD COLUMN"},
		"no order":     {`CREATE TABLE outbox (id uuid, aggregate_type text, aggregate_id text, event_type text, payload text, published boolean)`, "order_by"},
		"other column": {`CREATE TABLE outbox (id uuid, name text, published boolean)`, "name a column"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			w := newWorld(t, nil, tt.ddl)
			in := w.start(nil)
			err := in.end()
			if failure.ClassOf(err) != failure.Config || !strings.Contains(failure.RemedyOf(err), tt.remedy) {
				t.Errorf("Run = %v, remedy %q", err, failure.RemedyOf(err))
			}
		})
	}
}

func TestStatusTellsTheBacklog(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, serialIndex)
	f := newFault()
	f.down()
	w.insert(w.conn, "k0", 0)
	in := w.start(f)
	w.await("a status", func() bool {
		st := in.status()
		return st.UnpublishedRows == 1 && st.InFlightEvents == 1 && st.OldestSeconds >= 0 && st.Role == "active"
	})
	holders, err := poll.ReadLanes(w.ctx(), w.conn, w.table())
	if err != nil || len(holders) != 1 || len(holders[0].Lanes) != 16 || holders[0].Application != "cdc-outbox" {
		t.Errorf("holders of lanes %+v, %v; want one with all 16", holders, err)
	}
	backlog, err := poll.ReadBacklog(w.ctx(), w.conn, w.table())
	if err != nil || backlog.Rows != 1 {
		t.Errorf("backlog %+v, %v", backlog, err)
	}
	f.up()
	w.published(1)
}

func TestReadinessNamesTheCauseFromTheBeginning(t *testing.T) {
	m := metrics.New("", "").Pipeline("")
	r := must.Get(poll.New(poll.Parts{
		Options: poll.DefaultOptions(), Event: transform.DefaultEvent(), Route: transform.DefaultRoute(),
		Metrics: m, Kafka: delivery.NewDownstream(m), Log: zap.NewNop(),
	}))(t)
	if ok, reasons := r.Health().Ready(); ok || !slices.Contains(reasons, "PostgreSQL: no connection yet") {
		t.Errorf("Ready = %v, %v", ok, reasons)
	}
}
