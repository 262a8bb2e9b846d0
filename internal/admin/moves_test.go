package admin

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// byKey is an outbox in partitions by the key, with a single partition for all.
func byKey(key, primary string) []string {
	if primary != "" {
		primary = ", PRIMARY KEY (" + primary + ")"
	}
	return []string{fmt.Sprintf(`CREATE TABLE outbox (id uuid NOT NULL, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, payload jsonb,
		created_at timestamptz NOT NULL DEFAULT now(), published bool NOT NULL DEFAULT false%s) PARTITION BY %s`, primary, key),
		`CREATE TABLE rest PARTITION OF outbox DEFAULT`}
}

// Failure mode 99. Where rows moving to another partition would be published
// again, check says so, and its remedy mends the publication.
func TestCheckFindsMovesThatNothingTells(t *testing.T) {
	const insertOnly = `CREATE PUBLICATION cdc_outbox FOR TABLE outbox WITH (publish = 'insert, update', publish_via_partition_root = true)`
	const deletes = `CREATE PUBLICATION cdc_outbox FOR TABLE outbox WITH (publish = 'insert, delete', publish_via_partition_root = true)`
	flag := `LIST (published)`
	for name, c := range map[string]struct {
		tables []string
		words  string // of the warning; "": none
		mends  bool   // the remedy is SQL
	}{
		"setup made the publication": {byKey(flag, "id, published"), "", false},
		"a flag":                     {append(byKey(flag, "id, published"), insertOnly), "published", true},
		"a flag, and all tables":     {append(byKey(flag, "id, published"), `CREATE PUBLICATION cdc_outbox FOR ALL TABLES WITH (publish = 'insert', publish_via_partition_root = true)`), "published", true},
		"without a key":              {byKey(flag, ""), "does not publish deletions", false},
		"a key without the id":       {append(byKey(flag, "created_at, published"), deletes), `no column "id"`, false},
		"in a subpartition": {append(byKey(`RANGE (created_at)`, "id, created_at, published"), insertOnly, `ALTER TABLE outbox DETACH PARTITION rest`, `DROP TABLE rest`,
			`CREATE TABLE rest PARTITION OF outbox DEFAULT PARTITION BY LIST (published)`, `CREATE TABLE leaf PARTITION OF rest DEFAULT`), "published", true},
		"a time":                  {append(byKey(`RANGE (created_at)`, "id, created_at"), insertOnly), "", false},
		"a time in an expression": {append(byKey(`RANGE (date_trunc('day', created_at AT TIME ZONE 'UTC'))`, ""), strings.Replace(insertOnly, ", update", "", 1)), "", false},
		"a key in an expression":  {append(byKey(`LIST (lower(aggregateid))`, ""), strings.Replace(insertOnly, ", update", "", 1)), "aggregateid", false},
		"the id":                  {append(byKey(`RANGE (id)`, "id"), insertOnly), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := empty(t)
			f.exec(c.tables...)
			f.setup()
			if c.words == "" {
				f.wantCheck("partitions public.outbox", OK, "")
				return
			}
			finding := f.wantCheck("partitions public.outbox", Warn, c.words)
			steps := must.Get(Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium}))(t)
			if detail := steps[1].Detail; !strings.Contains(detail, "WARNING: rows of table public.outbox that move") {
				t.Errorf("setup says %q", detail)
			}
			remedy, _, sql := strings.Cut(finding.Remedy, ". Until then")
			if !sql || strings.HasPrefix(remedy, "BEGIN;") != c.mends {
				t.Fatalf("remedy %q", finding.Remedy)
			}
			if c.mends {
				f.exec(remedy)
				f.wantCheck("partitions public.outbox", OK, "")
			}
		})
	}
}

// Failure mode 99. Rows in the default partition are moved sooner or later.
func TestCheckFindsRowsInTheDefaultPartition(t *testing.T) {
	f := empty(t)
	f.exec(byKey(`RANGE (created_at)`, "id, created_at")...)
	f.exec(`CREATE PUBLICATION cdc_outbox FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)`)
	f.setup()
	pgtest.Exec(t, f.Source.URL.Reveal(), `INSERT INTO outbox (id, aggregatetype, aggregateid, type) VALUES (gen_random_uuid(), 'order', '1', 'Placed')`)
	await.Until(t, "the statistics", func() bool {
		return find(t, Check(f.ctx(), f.Config), "partitions public.outbox").Outcome == Warn
	})
	f.wantCheck("partitions public.outbox", Warn, "in the default one: public.rest")
}

// The remedy takes no DELETE of another table from the application.
func TestRemedyForMovesNamesTablesWithoutIdentity(t *testing.T) {
	f := empty(t)
	f.exec(byKey(`LIST (published)`, "id, published")...)
	f.exec(`CREATE TABLE "no key" (n int)`, `CREATE PUBLICATION cdc_outbox FOR ALL TABLES WITH (publish = 'insert', publish_via_partition_root = true)`)
	f.setup()
	finding := f.wantCheck("partitions public.outbox", Warn, "published")
	if !strings.HasPrefix(finding.Remedy, "give these tables") || !strings.Contains(finding.Remedy, `public."no key"; then BEGIN;`) {
		t.Errorf("remedy %q", finding.Remedy)
	}
}

// A blind option is no assurance.
func TestCheckNamesUpdatesThatAreNotPublished(t *testing.T) {
	f := empty(t)
	f.exec(byKey(`LIST (published)`, "id, published")...)
	f.exec(`CREATE PUBLICATION cdc_outbox FOR TABLE outbox WITH (publish = 'insert, delete', publish_via_partition_root = true)`)
	f.Event.OnUpdate = transform.UpdateFatal
	f.setup()
	finding := f.wantCheck("publication", Warn, "event.on_update: fatal has no effect")
	_, remedy, _ := strings.Cut(finding.Remedy, ": ")
	f.exec(remedy)
	f.wantNothingWrong()
}

// The transaction of a move refused by run can be passed over, and tail prints
// no move.
func TestMovesAreNoEventsToTheVerbs(t *testing.T) {
	f := empty(t)
	f.exec(byKey(`LIST (published)`, "id, published")...)
	f.exec(`CREATE TABLE done PARTITION OF outbox FOR VALUES IN (true)`)
	f.Event.OnUpdate = transform.UpdateFatal
	f.setup()
	f.save()
	var out bytes.Buffer
	tailed := f.tail(f.ctx(), TailOptions{Limit: 2, Out: &out})
	f.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type) VALUES (gen_random_uuid(), 'order', '1', 'Placed')`,
		`BEGIN; UPDATE outbox SET published = true; INSERT INTO outbox (id, aggregatetype, aggregateid, type) VALUES (gen_random_uuid(), 'order', '2', 'Placed'); COMMIT`)
	must.OK(t, <-tailed)
	if text := out.String(); strings.Count(text, "key 1\n") != 1 || strings.Count(text, "key 2\n") != 1 {
		t.Errorf("tail printed %s", text)
	}
	at := f.commits(2)[1]
	done := must.Get(SkipTransaction(f.ctx(), f.Config, at.Commit, true))(t)
	if done.Total != 2 || done.Events[0].Reason != reasonUpdate || done.Events[1].Reason != "" {
		t.Errorf("passed over %+v", done)
	}
}
