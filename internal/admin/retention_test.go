package admin

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// kept turns retention on.
func kept(f *fixture) { f.Retention.After = 24 * time.Hour }

func TestRetentionAsALeastPrivilegedRole(t *testing.T) {
	f := empty(t)
	t.Cleanup(func() { f.exec(`DROP OWNED BY "cdc keeper"`, `DROP ROLE "cdc keeper"`) })
	f.exec(`CREATE ROLE "cdc keeper" LOGIN REPLICATION PASSWORD 'pw'`)
	kept(f)
	f.setup()

	owner := f.Source.URL
	f.Source.URL = asRole(owner, "cdc keeper", "pw")
	found := f.wantCheck("retention public.outbox", Fail, "may not delete")
	f.exec(found.Remedy)
	f.wantCheck("retention public.outbox", OK, "")

	f.exec(`REVOKE ALL ON outbox FROM "cdc keeper"`)
	f.Source.URL = owner
	must.Get(Setup(f.ctx(), f.Config, SetupOptions{Role: "cdc keeper"}))(t)
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
	kept(f)
	f.setup()
	partitioned(f)
	must.Contain(t, text(t, Status(f.ctx(), f.Config)), "in 1 partitions, published rows go after 24h0m0s")
}

// repartitioned replaces the outbox with a table partitioned in another way.
func repartitioned(f *fixture, by string) {
	f.exec(`ALTER TABLE outbox RENAME TO outbox_plain`, `CREATE TABLE outbox (LIKE outbox_plain) PARTITION BY `+by,
		`ALTER PUBLICATION cdc_outbox SET TABLE outbox`, `ALTER PUBLICATION cdc_outbox SET (publish_via_partition_root = true)`)
}

// partitioned replaces the outbox with a partitioned table.
func partitioned(f *fixture) {
	f.exec(`DROP TABLE outbox`, outbox.PartitionedSchema, `DROP TABLE outbox_default`,
		`CREATE TABLE o_past PARTITION OF outbox FOR VALUES FROM ('2020-01-01') TO ('2030-01-01')`,
		`ALTER PUBLICATION cdc_outbox SET TABLE outbox`, `ALTER PUBLICATION cdc_outbox SET (publish_via_partition_root = true)`)
}
