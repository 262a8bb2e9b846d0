package admin

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/must"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// TestCheckRetention breaks, one at a time, what retention needs; where the
// remedy is SQL it fixes that.
func TestCheckRetention(t *testing.T) {
	for _, tt := range []struct {
		name    string
		do      func(*fixture)
		outcome Outcome
		words   string
		fixes   bool
	}{
		{"nothing wrong", func(*fixture) {}, OK, "published rows go after 24h", false},
		{"no such column", func(f *fixture) { f.exec(`ALTER TABLE outbox DROP COLUMN created_at`) }, Fail, `no column "created_at"`, true},
		{"no time", func(f *fixture) { f.Retention.Column = "payload" }, Fail, "of type jsonb", false},
		{"partitioned", partitioned, OK, "published partitions go after 24h", false},
		{"partitioned by hash", func(f *fixture) { repartitioned(f, `HASH (id)`) }, Fail, "not by ranges of time", false},
		{"partitioned by list", func(f *fixture) { repartitioned(f, `LIST (aggregatetype)`) }, Fail, "not by ranges of time", false},
		{"partitioned by what is no time", func(f *fixture) { repartitioned(f, `RANGE (id)`) }, Fail, "not by ranges of time", false},
		{"partitioned by two columns", func(f *fixture) { repartitioned(f, `RANGE (created_at, id)`) }, Fail, "not by ranges of time", false},
		{"partitioned by an expression", func(f *fixture) { repartitioned(f, `RANGE ((created_at AT TIME ZONE 'UTC'))`) }, OK, "published partitions go", false},
		{"default partition", func(f *fixture) { partitioned(f); f.exec(`CREATE TABLE o_rest PARTITION OF outbox DEFAULT`) }, Warn, "exclusive lock", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := empty(t)
			f.Retention.After = 24 * time.Hour
			f.setup()
			tt.do(f)
			found := f.wantCheck("retention public.outbox", tt.outcome, tt.words)
			if tt.fixes {
				_, sql, _ := strings.Cut(found.Remedy, "or: ")
				f.exec(sql)
				f.wantCheck("retention public.outbox", OK, "")
			}
		})
	}
}

func TestRetentionAsALeastPrivilegedRole(t *testing.T) {
	f := empty(t)
	t.Cleanup(func() { f.exec(`DROP OWNED BY "cdc keeper"`, `DROP ROLE "cdc keeper"`) })
	f.exec(`CREATE ROLE "cdc keeper" LOGIN REPLICATION PASSWORD 'pw'`)
	f.Retention.After = 24 * time.Hour
	f.setup()

	owner := f.Source.URL
	f.Source.URL = asRole(owner, "cdc keeper", "pw")
	found := f.wantCheck("retention public.outbox", Fail, "may not delete")
	f.exec(found.Remedy)
	f.wantCheck("retention public.outbox", OK, "")

	f.exec(`REVOKE ALL ON outbox FROM "cdc keeper"`)
	f.Source.URL = owner
	if _, err := Setup(f.ctx(), f.Config, SetupOptions{Role: "cdc keeper"}); err != nil {
		t.Fatal(err)
	}
	f.Source.URL = asRole(owner, "cdc keeper", "pw")
	f.wantCheck("retention public.outbox", OK, "")

	partitioned(f)
	found = f.wantCheck("retention public.outbox", Fail, "only by its owner")
	f.exec(found.Remedy)
	f.wantCheck("retention public.outbox", OK, "")

	f.exec(strings.NewReplacer("GRANT", "REVOKE", " TO ", " FROM ").Replace(found.Remedy),
		`REVOKE CREATE ON SCHEMA public FROM PUBLIC`, `CREATE ROLE "cdc owner"`, `ALTER TABLE outbox OWNER TO "cdc owner"`, `GRANT "cdc owner" TO "cdc keeper"`)
	t.Cleanup(func() { f.exec(`DROP OWNED BY "cdc owner"`, `DROP ROLE "cdc owner"`) })
	found = f.wantCheck("retention public.outbox", Fail, "may not create")
	f.exec(found.Remedy)
	f.wantCheck("retention public.outbox", OK, "")
}

func TestStatusShowsTheTablesSize(t *testing.T) {
	f := empty(t)
	f.Retention.After = 24 * time.Hour
	f.setup()
	partitioned(f)
	must.Contain(t, text(t, Status(f.ctx(), f.Config)), "in 1 partitions, published rows go after 24h0m0s")
}

// repartitioned replaces the outbox with one that is partitioned in another way.
func repartitioned(f *fixture, by string) {
	f.exec(`ALTER TABLE outbox RENAME TO outbox_plain`, `CREATE TABLE outbox (LIKE outbox_plain) PARTITION BY `+by,
		`ALTER PUBLICATION cdc_outbox SET TABLE outbox`, `ALTER PUBLICATION cdc_outbox SET (publish_via_partition_root = true)`)
}

// partitioned replaces the outbox with a partitioned one.
func partitioned(f *fixture) {
	f.exec(`DROP TABLE outbox`, outbox.PartitionedSchema, `DROP TABLE outbox_default`,
		`CREATE TABLE o_past PARTITION OF outbox FOR VALUES FROM ('2020-01-01') TO ('2030-01-01')`,
		`ALTER PUBLICATION cdc_outbox SET TABLE outbox`, `ALTER PUBLICATION cdc_outbox SET (publish_via_partition_root = true)`)
}
