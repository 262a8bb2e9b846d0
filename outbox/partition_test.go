package outbox_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
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
			now, err := tt.table.Partition(tt.span, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			next, err := tt.table.Partition(tt.span, now.To)
			if err != nil {
				t.Fatal(err)
			}
			// An hour may end while the test runs.
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

// TestPartitionsAreCreatedBesideWriters: an open transaction that wrote events
// neither delays a new partition nor is delayed by it.
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

// TestPartitionIsCreatedOnce by two who are at it at the same time.
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

// laterPartition is one that no row of today needs.
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
