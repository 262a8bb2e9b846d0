package outbox_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

func TestPartitionsAreCutInUTC(t *testing.T) {
	berlin := time.FixedZone("CET", 3600)
	for _, tt := range []struct {
		span           outbox.Span
		at             time.Time
		name, from, to string
	}{
		{outbox.Daily, time.Date(2026, 1, 1, 0, 30, 0, 0, berlin), "outbox_p20251231", "2025-12-31 00:00", "2026-01-01 00:00"},
		{outbox.Daily, time.Date(2028, 2, 29, 23, 59, 59, 999, time.UTC), "outbox_p20280229", "2028-02-29 00:00", "2028-03-01 00:00"},
		{outbox.Hourly, time.Date(2026, 1, 1, 0, 30, 0, 0, berlin), "outbox_p20251231_23", "2025-12-31 23:00", "2026-01-01 00:00"},
		{outbox.Hourly, time.Date(2026, 1, 1, 15, 0, 0, 0, time.UTC), "outbox_p20260101_15", "2026-01-01 15:00", "2026-01-01 16:00"},
	} {
		p, err := outbox.Table{}.Partition(tt.span, tt.at)
		if err != nil {
			t.Fatal(err)
		}
		const layout = "2006-01-02 15:04"
		if p.Name != tt.name || p.From.Format(layout) != tt.from || p.To.Format(layout) != tt.to || p.Table.Name != "outbox" {
			t.Errorf("partition %+v, want %+v", p, tt)
		}
	}
}

func TestPartitionRefusesWhatCannotBe(t *testing.T) {
	for name, partition := range map[string]func() (outbox.Partition, error){
		"span": func() (outbox.Partition, error) { return outbox.Table{}.Partition(9, time.Now()) },
		"long name": func() (outbox.Partition, error) {
			return outbox.Table{Name: strings.Repeat("x", 54)}.Partition(0, time.Now())
		},
		"quotes": func() (outbox.Partition, error) { return outbox.Table{Schema: "$partition$"}.Partition(0, time.Now()) },
	} {
		if p, err := partition(); err == nil {
			t.Errorf("%s: partition %+v, want an error", name, p)
		}
	}
}

// presentPartitions are the present and the next partition, as a span may end
// while the test runs.
func presentPartitions(t *testing.T, table outbox.Table, span outbox.Span) (now, next outbox.Partition) {
	t.Helper()
	now, err := table.Partition(span, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if next, err = table.Partition(span, now.To); err != nil {
		t.Fatal(err)
	}
	return now, next
}

func TestPartitionsTakeTheRowsOfTheirTime(t *testing.T) {
	for name, tt := range map[string]struct {
		table outbox.Table
		span  outbox.Span
	}{
		"daily":            {outbox.Table{}, outbox.Daily},
		"hourly, quoted":   {outbox.Table{Schema: "My 'App\"", Name: "Out"}, outbox.Hourly},
		"schema, by names": {outbox.Table{Schema: "app"}, outbox.Daily},
	} {
		t.Run(name, func(t *testing.T) {
			url := newDB(t)
			schema := "public"
			if tt.table.Schema != "" {
				schema = strings.ReplaceAll(tt.table.Schema, `"`, `""`)
				pgtest.Exec(t, url, `CREATE SCHEMA "`+schema+`"`)
			}
			path := `SET search_path = "` + schema + `"; `
			pgtest.Exec(t, url, path+outbox.PartitionedSchema)
			if tt.table.Name != "" {
				pgtest.Exec(t, url, path+`ALTER TABLE outbox RENAME TO "`+tt.table.Name+`"`)
			}
			now, next := presentPartitions(t, tt.table, tt.span)
			pgtest.Exec(t, url, now.SQL(), now.SQL(), next.SQL())

			tx := begin(t, url)
			if _, err := newWriter(t, outbox.Options{Table: tt.table}).Write(t.Context(), outbox.PGX(tx), order("1"), order("2")); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			count := fmt.Sprintf(`SELECT (SELECT count(*) FROM "%[1]s"."%[2]s") + (SELECT count(*) FROM "%[1]s"."%[3]s")`, schema, now.Name, next.Name)
			var got int
			if err := connect(t, url).QueryRow(t.Context(), count).Scan(&got); err != nil || got != 2 {
				t.Errorf("%d rows in %s and %s (%v), want 2", got, now.Name, next.Name, err)
			}
		})
	}
}

// TestPartitionsAreCreatedBesideWriters: an open transaction with events neither
// delays a new partition nor is delayed.
func TestPartitionsAreCreatedBesideWriters(t *testing.T) {
	url := newDB(t, partitioned(t)...)
	tx := begin(t, url)
	if _, err := outbox.Write(t.Context(), tx, order("1")); err != nil {
		t.Fatal(err)
	}
	creator := begin(t, url)
	for _, sql := range []string{"SET LOCAL lock_timeout = '20s'", laterPartition(t).SQL()} {
		if _, err := creator.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	// The partition's creation is not committed yet.
	if _, err := tx.Exec(t.Context(), "SET LOCAL lock_timeout = '20s'"); err != nil {
		t.Fatal(err)
	}
	if _, err := outbox.Write(t.Context(), tx, order("2")); err != nil {
		t.Error(err)
	}
}

// TestPartitionIsCreatedOnce by two at the same time.
func TestPartitionIsCreatedOnce(t *testing.T) {
	url := newDB(t, outbox.PartitionedSchema)
	create := laterPartition(t).SQL()
	first := begin(t, url)
	if _, err := first.Exec(t.Context(), create); err != nil {
		t.Fatal(err)
	}
	second := connect(t, url)
	created := make(chan error, 1)
	go func() {
		_, err := second.Exec(t.Context(), create)
		created <- err
	}()
	awaitTrue(t, url, "the second waits", `SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $1`, second.PgConn().PID())
	if err := first.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-created; err != nil {
		t.Error(err)
	}
}

// laterPartition is a partition unneeded by today's rows.
func laterPartition(t *testing.T) outbox.Partition {
	t.Helper()
	p, err := outbox.Table{}.Partition(outbox.Daily, time.Now().AddDate(0, 0, 7))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDefaultPartitionCatchesWhatHasNoOther(t *testing.T) {
	url := newDB(t, outbox.PartitionedSchema, outbox.PartitionedSchema)
	tx := begin(t, url)
	if _, err := outbox.Write(t.Context(), tx, order("1")); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := readRows(t, url, "outbox_default", debezium...); len(got) != 1 {
		t.Errorf("%d rows in the default partition, want 1", len(got))
	}
	p, err := outbox.Table{}.Partition(outbox.Daily, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := connect(t, url).Exec(t.Context(), p.SQL()); err == nil || !strings.Contains(err.Error(), "outbox_default") {
		t.Errorf("creating the partition beside rows of its time: %v, want an error that names outbox_default", err)
	}
}

// A table may have an identity column; PostgreSQL 17 and later refuse an identity
// column in an attached table.
func TestPartitionOfATableWithAnIdentity(t *testing.T) {
	url := newDB(t, `CREATE TABLE numbered (id uuid, aggregatetype text, aggregateid text, type text, payload jsonb, headers jsonb,
		n bigint GENERATED ALWAYS AS IDENTITY, created_at timestamptz NOT NULL DEFAULT now()) PARTITION BY RANGE (created_at)`)
	table := outbox.Table{Name: "numbered"}
	now, next := presentPartitions(t, table, outbox.Daily)
	pgtest.Exec(t, url, now.SQL(), next.SQL())
	tx := begin(t, url)
	if _, err := newWriter(t, outbox.Options{Table: table}).Write(t.Context(), outbox.PGX(tx), order("1"), order("2")); err != nil {
		t.Fatal(err)
	}
	var numbers int
	if err := tx.QueryRow(t.Context(), `SELECT sum(n) FROM numbered`).Scan(&numbers); err != nil || numbers != 3 {
		t.Errorf("the rows' numbers make %d (%v), want 1 + 2", numbers, err)
	}
}

// Another span needs no Table.Partition.
func TestPartitionMadeByHand(t *testing.T) {
	url := newDB(t, outbox.PartitionedSchema)
	berlin := time.FixedZone("CET", 3600)
	week := outbox.Partition{
		Name: "outbox_week",
		From: time.Date(2030, 1, 7, 1, 0, 0, 0, berlin), To: time.Date(2030, 1, 14, 1, 0, 0, 0, berlin),
	}
	pgtest.Exec(t, url, week.SQL())
	var bounds string
	err := connect(t, url+"?timezone=UTC").QueryRow(t.Context(),
		`SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE relname = 'outbox_week'`).Scan(&bounds)
	if err != nil {
		t.Fatal(err)
	}
	if want := "FOR VALUES FROM ('2030-01-07 00:00:00+00') TO ('2030-01-14 00:00:00+00')"; bounds != want {
		t.Errorf("bounds %s, want %s", bounds, want)
	}
}
