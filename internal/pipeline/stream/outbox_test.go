package stream

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/retention"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// patience is a limit not to be reached.
const patience = time.Minute

// database is an outbox, with a connection for looks at table and slot.
type database struct {
	t       *testing.T
	url     string
	conn    *pgx.Conn
	opts    Options
	event   transform.EventOptions
	route   transform.RouteOptions
	kafka   *sink.Options // of withKafka
	letters string        // the dead letter topic
	limits  limits

	// Shared by its instances, unless a test gives them others.
	store *fakeStore
	gate  *gate // into topic
	topic *topic
	ids   []string // committed by insert
	next  int      // event id
}

// defaultOptions are those of an empty configuration.
func defaultOptions() Options {
	kafka := sink.DefaultOptions()
	return Options{
		Tables:           []pg.Table{{Schema: "public", Name: "outbox"}},
		Slot:             "cdc_outbox",
		Publication:      "cdc_outbox",
		Create:           true,
		Prefix:           "outbox",
		StatusInterval:   time.Second,
		LivenessTimeout:  time.Minute,
		OnUpdate:         transform.UpdateWarn,
		OnBadEvent:       transform.BadEventStop,
		DrainTimeout:     20 * time.Second,
		MaxBufferedBytes: kafka.MaxBufferedBytes,
		Linger:           kafka.Linger,
		Checkpoint:       store.DefaultOptions(),
		Retention:        retention.DefaultOptions(),
	}
}

// outbox is sharedDatabase for a parallel test.
func outbox(t *testing.T) *database {
	t.Helper()
	t.Parallel()
	return sharedDatabase(t)
}

func sharedDatabase(t *testing.T) *database {
	t.Helper()
	return newDatabase(t, pgtest.Shared(t).NewDatabase(t))
}

// newDatabase makes an outbox in the database, and a configuration. The slot has the
// database's name, as slots are the cluster's.
func newDatabase(t *testing.T, url string) *database {
	t.Helper()
	to := &topic{}
	d := &database{t: t, url: url, store: &fakeStore{}, gate: &gate{topic: to}, topic: to, opts: defaultOptions(), event: transform.DefaultEvent(), route: transform.DefaultRoute(), kafka: sink.DefaultOptions(), letters: "outbox.dead-letter", limits: usual}
	d.limits.close, d.limits.monitor, d.limits.quiet = patience, 100*time.Millisecond, 500*time.Millisecond
	d.connect()
	d.exec(outboxTable)
	d.opts.URL = url
	d.opts.Slot = "slot_" + d.text("SELECT current_database()")
	d.opts.Checkpoint.Interval = 20 * time.Millisecond
	d.opts.StatusInterval = 200 * time.Millisecond
	d.opts.DrainTimeout = patience
	return d
}

// connect opens the connection for looks; once more after a restart.
func (d *database) connect() {
	d.t.Helper()
	conn := must.Get(pgx.Connect(d.t.Context(), d.url))(d.t)
	d.conn = conn
	d.t.Cleanup(func() { _ = conn.Close(context.Background()) })
}

func (d *database) exec(sql string) {
	d.t.Helper()
	if _, err := d.conn.Exec(d.t.Context(), sql); err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
}

func (d *database) text(sql string) string {
	d.t.Helper()
	var got string
	if err := d.conn.QueryRow(d.t.Context(), sql).Scan(&got); err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
	return got
}

func (d *database) lsn(sql string) pg.LSN {
	d.t.Helper()
	return must.Get(pglogrepl.ParseLSN(d.text(sql)))(d.t)
}

// confirmed is the slot's confirmed position.
func (d *database) confirmed() pg.LSN {
	d.t.Helper()
	return d.lsn("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '" + d.opts.Slot + "'")
}

// walsender is the slot's process, or 0.
func (d *database) walsender() int {
	d.t.Helper()
	return must.Get(strconv.Atoi(d.text("SELECT COALESCE(max(active_pid), 0)::text FROM pg_replication_slots WHERE slot_name = '" + d.opts.Slot + "'")))(d.t)
}

// kill ends the walsender and returns once another reads the slot.
func (d *database) kill() {
	d.t.Helper()
	old := d.walsender()
	d.exec(fmt.Sprintf("SELECT pg_terminate_backend(%d)", old))
	eventually(d.t, "another walsender", func() bool { pid := d.walsender(); return pid != 0 && pid != old })
}

// heard returns once the present walsender has had a status update.
func (d *database) heard() {
	d.t.Helper()
	pid := d.walsender()
	eventually(d.t, "a status update", func() bool {
		return d.text(fmt.Sprintf("SELECT count(flush_lsn)::text FROM pg_stat_replication WHERE pid = %d", pid)) == "1"
	})
}

// insert commits n events in transactions of per and returns their ids.
func (d *database) insert(n, per int) (ids []string) {
	d.t.Helper()
	for len(ids) < n {
		first := d.next + 1
		d.next += min(per, n-len(ids))
		d.exec(fmt.Sprintf("INSERT INTO outbox SELECT n::text, 'order', 'o-' || n %% 7, 'Placed', '{}' FROM generate_series(%d, %d) n", first, d.next))
		for id := first; id <= d.next; id++ {
			ids = append(ids, strconv.Itoa(id))
		}
	}
	d.ids = append(d.ids, ids...)
	return ids
}
