package admin

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

func text(t *testing.T, r interface{ WriteText(io.Writer) error }) string {
	t.Helper()
	var b bytes.Buffer
	must.OK(t, r.WriteText(&b))
	must.Get(json.Marshal(r))(t)
	return b.String()
}

func TestStatus(t *testing.T) {
	for _, tt := range []struct {
		name  string
		do    func(*fixture)
		class failure.Class
		bad   bool
		words []string
	}{
		{"not set up", func(f *fixture) {
			f.forget()
			f.exec(dropSlot(f), `DROP PUBLICATION cdc_outbox`)
		}, 0, false, []string{"not set up yet", "-> cdc-outbox setup\n", "slot         missing", "publication  missing"}},
		{"not running", func(f *fixture) { f.save() }, 0, false,
			[]string{"nobody is reading the slot", "held by      nobody", "saved ", "publishes insert, update"}},
		{"running", func(f *fixture) { f.save(); f.hold() }, 0, false,
			[]string{"the slot is being read", "held by      pid ", "cdc-outbox"}},
		{"slot gone", func(f *fixture) { f.save(); f.exec(dropSlot(f)) }, failure.Loss, true, []string{"run ends with exit code 3: ", "is gone", "-> ", "setup --accept-gap"}},
		{"publication gone", func(f *fixture) { f.save(); f.exec(`DROP PUBLICATION cdc_outbox`) }, failure.Loss, true, []string{"publication \"cdc_outbox\" does not", "`cdc-outbox setup --accept-gap`"}},
		{"table taken out", func(f *fixture) { f.save(); f.exec(`ALTER PUBLICATION cdc_outbox DROP TABLE outbox`) }, failure.Loss, true,
			[]string{"run ends with exit code 3: table public.outbox is not in publication", "ADD TABLE", "setup --accept-gap"}},
		{"not running for long", func(f *fixture) {
			cp := f.save()
			cp.SavedAt = cp.SavedAt.Add(-time.Hour)
			f.put(cp)
			f.insert("order", "1", "{}")
		}, failure.Transient, true, []string{"nobody is reading the slot, and nothing has been confirmed since", "start the connector"}},
		{"Kafka down", func(f *fixture) {
			f.Sink = config.Sink{Kafka: sink.DefaultOptions()}
			f.Sink.Kafka.Brokers = []string{"127.0.0.1:1"}
			f.Checkpoint.Store = store.StoreKafka
		}, failure.Transient, true, []string{"nobody is reading the slot", "wal_status reserved", "connect to Kafka at 127.0.0.1:1", "in Kafka topic cdc-outbox.checkpoints"}},
		{"PostgreSQL down", func(f *fixture) {
			f.save()
			f.Source.URL = setting.Secret("postgres://nobody@127.0.0.1:1/" + f.conn.Config().Database)
		}, failure.Transient, true, []string{"PostgreSQL cannot be asked", "checkpoint   0/", "connect to PostgreSQL"}},
		{"a lock on the outbox", func(f *fixture) { f.save(); f.lock("outbox") }, failure.Transient, true,
			[]string{"55P03", "checkpoint   0/", "wal_status reserved", "pg_stat_activity"}},
		{"a lock on the catalogs", func(f *fixture) { f.save(); f.lock("pg_publication") }, failure.Transient, true,
			[]string{"55P03", "checkpoint   0/", "pg_stat_activity"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := sound(t)
			tt.do(f)
			r := Status(f.ctx(), f.Config)
			if err := r.Err(); (err != nil) != tt.bad || err != nil && failure.ClassOf(err) != tt.class {
				t.Errorf("error %v of class %v", err, failure.ClassOf(err))
			}
			got := text(t, r)
			must.Contain(t, got, tt.words...)
		})
	}
}

// lock has another session hold the table for as long as the test lasts.
func (f *fixture) lock(table string) {
	f.t.Helper()
	other := newFixture(f.t, f.Source.URL.Reveal())
	other.exec("BEGIN", "LOCK TABLE "+table+" IN ACCESS EXCLUSIVE MODE")
	f.Source.URL += "?lock_timeout=100"
}

func TestStatusText(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	lag, left := 0.25, int64(5<<30)
	r := &StatusReport{
		At:      at,
		Verdict: "the slot is being read",
		PostgreSQL: &DatabaseStatus{
			Version: 170004, Database: "app", SystemID: "7", Timeline: 2, CurrentLSN: "16/B374D848",
			Slot: &SlotStatus{
				Name: "cdc_outbox", Active: true, ConfirmedLSN: "16/B374D000", LagBytes: 2120, RetainedBytes: 3 << 20,
				LagSeconds: &lag, WALStatus: "reserved", SafeWALSize: &left, MaxSlotWALKeepSize: 10 << 30,
				Holder: &catalog.Holder{PID: 42, Application: "cdc-outbox", User: "cdc", Address: "10.0.0.7", Since: &at},
			},
			Publication: &PublicationStatus{Name: "cdc_outbox", Operations: "insert, update"},
		},
		Checkpoint:      &CheckpointStatus{LSN: "16/B374D000", SavedAt: at.Add(-2 * time.Second), AgeSeconds: 2},
		CheckpointStore: "Kafka topic cdc-outbox.checkpoints.app-cdc_outbox",
	}
	const want = `the slot is being read

postgresql   17.4, database app, primary on timeline 2, WAL at 16/B374D848
slot         cdc_outbox, confirmed up to 16/B374D000
lag          2.1 KiB behind, flush_lag at the last answer 250ms
wal          3.0 MiB retained, wal_status reserved, lost after another 5.0 GiB (max_slot_wal_keep_size)
held by      pid 42, cdc-outbox as cdc from 10.0.0.7, since 2026-01-02T03:04:05Z
publication  cdc_outbox publishes insert, update
checkpoint   16/B374D000, saved 2s ago (2026-01-02T03:04:03Z)
             in Kafka topic cdc-outbox.checkpoints.app-cdc_outbox
`
	if got := text(t, r); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestFormatBytes(t *testing.T) {
	for _, tt := range []struct {
		n    int64
		want string
	}{
		{0, "0 B"}, {1023, "1023 B"}, {1024, "1.0 KiB"}, {1536, "1.5 KiB"}, {1 << 20, "1.0 MiB"},
		{5 << 30, "5.0 GiB"}, {3 << 40, "3.0 TiB"}, {5000 << 40, "5000.0 TiB"},
	} {
		if got := formatBytes(tt.n); got != tt.want {
			t.Errorf("%d: got %s, want %s", tt.n, got, tt.want)
		}
	}
}
