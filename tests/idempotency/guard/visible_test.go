package guard_test

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency/guard"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// visible are the ways to wait on a server.
func visible(t *testing.T, url string) map[string]func(ctx context.Context, headers []kgo.RecordHeader) error {
	t.Helper()
	conn, pool := must.Get(pgx.Connect(limited(t), url))(t), newPool(t, url)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	all := map[string]func(context.Context, []kgo.RecordHeader) error{
		"a connection of pgx": func(ctx context.Context, h []kgo.RecordHeader) error { return guard.Visible(ctx, conn, h) },
		"a pool of pgx":       func(ctx context.Context, h []kgo.RecordHeader) error { return guard.Visible(ctx, pool, h) },
	}
	for _, driver := range []string{"pgx", "postgres"} {
		db := must.Get(sql.Open(driver, url+"?sslmode=disable"))(t)
		t.Cleanup(func() { _ = db.Close() })
		all["database/sql with "+driver] = func(ctx context.Context, h []kgo.RecordHeader) error { return guard.VisibleSQL(ctx, db, h) }
	}
	return all
}

// replicated is a primary with a standby, an outbox, and a slot that shows the headers of
// its events.
type replicated struct {
	*pgtest.Pair
	t                *testing.T
	primary, standby string // URLs
	look             *pgx.Conn
	n                int
}

func newReplicated(t *testing.T) *replicated {
	t.Helper()
	r := &replicated{Pair: pgtest.StartReplica(t), t: t}
	r.primary = r.Primary.NewDatabase(t)
	pgtest.Exec(t, r.primary, "CREATE TABLE outbox (id int)", "CREATE PUBLICATION p FOR TABLE outbox",
		"SELECT pg_create_logical_replication_slot('headers', 'pgoutput')")
	r.standby = r.Standby.URL(r.primary[strings.LastIndexByte(r.primary, '/')+1:])
	r.look = must.Get(pgx.Connect(limited(t), r.primary))(t)
	t.Cleanup(func() { _ = r.look.Close(context.Background()) })
	await.Until(t, "the standby to have the table", func() bool {
		conn, err := pgx.Connect(limited(t), r.standby)
		if err != nil {
			return false
		}
		defer conn.Close(context.Background())
		var there bool
		return conn.QueryRow(limited(t), "SELECT to_regclass('outbox') IS NOT NULL").Scan(&there) == nil && there
	})
	return r
}

// commit commits an event in the background, and returns the headers once the log has
// the event. join waits for the commit's end.
func (r *replicated) commit() (headers []kgo.RecordHeader, join func()) {
	r.t.Helper()
	r.n++
	conn, insert := must.Get(pgx.Connect(limited(r.t), r.primary))(r.t), fmt.Sprintf("INSERT INTO outbox VALUES (%d)", r.n)
	var done sync.WaitGroup
	done.Go(func() {
		_, _ = conn.Exec(context.WithoutCancel(r.t.Context()), insert)
		_ = conn.Close(context.Background())
	})
	var begin []byte
	await.Until(r.t, "the event in the log", func() bool {
		rows, _ := r.look.Query(limited(r.t), `SELECT data FROM pg_logical_slot_get_binary_changes('headers', NULL, NULL, 'proto_version', '1', 'publication_names', 'p')
			WHERE get_byte(data, 0) = ascii('B')`)
		found, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		if err == nil && len(found) > 0 {
			begin = found[len(found)-1]
		}
		return begin != nil
	})
	return headersOf(binary.BigEndian.Uint64(begin[1:]), binary.BigEndian.Uint32(begin[17:])), done.Wait
}

func headersOf(lsn uint64, xid uint32) []kgo.RecordHeader {
	return []kgo.RecordHeader{
		{Key: "id", Value: []byte("1")},
		{Key: "cdc-lsn", Value: fmt.Appendf(nil, "%X/%X", lsn>>32, uint32(lsn))},
		{Key: "cdc-xid", Value: strconv.AppendUint(nil, uint64(xid), 10)},
	}
}

// there tells whether the last event's row can be read.
func (r *replicated) there(url string) (is bool) {
	r.t.Helper()
	conn := must.Get(pgx.Connect(limited(r.t), url))(r.t)
	defer conn.Close(context.Background())
	must.OK(r.t, conn.QueryRow(limited(r.t), "SELECT EXISTS (SELECT FROM outbox WHERE id = $1)", r.n).Scan(&is))
	return is
}

// waits checks that each way to wait fails at the deadline with a text, while the row
// cannot be read; and, once let lets the row through, succeeds with the row there.
func (r *replicated) waits(url string, headers []kgo.RecordHeader, text string, let func()) {
	r.t.Helper()
	if r.there(url) {
		r.t.Fatal("the row can be read: this proves nothing")
	}
	all := visible(r.t, url)
	for name, wait := range all {
		deadline := 300 * time.Millisecond
		await.Until(r.t, name+" to say: "+text, func() bool {
			ctx, cancel := context.WithTimeoutCause(r.t.Context(), deadline, errPatience)
			defer cancel()
			deadline *= 2 // a busy server may not have answered
			err := wait(ctx, headers)
			if !errors.Is(err, errPatience) {
				r.t.Fatalf("%s: %v", name, err)
			}
			return strings.Contains(err.Error(), text)
		})
	}
	var waiting sync.WaitGroup
	for name, wait := range all {
		waiting.Go(func() {
			if err := wait(limited(r.t), headers); err != nil {
				r.t.Errorf("%s: %v", name, err)
			} else if !r.there(url) {
				r.t.Errorf("%s returned before the row could be read", name)
			}
		})
	}
	let()
	waiting.Wait()
}

// oldViews are ways to wait within transactions that keep their view of the rows.
func (r *replicated) oldViews(url string) map[string]func(ctx context.Context, headers []kgo.RecordHeader) error {
	r.t.Helper()
	conn, db := must.Get(pgx.Connect(limited(r.t), url))(r.t), must.Get(sql.Open("pgx", url))(r.t)
	one := must.Get(db.Conn(limited(r.t)))(r.t)
	r.t.Cleanup(func() { _, _, _ = conn.Close(context.Background()), one.Close(), db.Close() })
	const begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM outbox"
	must.Get(conn.Exec(limited(r.t), begin))(r.t)
	must.Get(one.ExecContext(limited(r.t), begin))(r.t)
	return map[string]func(context.Context, []kgo.RecordHeader) error{
		"pgx, in a transaction":          func(ctx context.Context, h []kgo.RecordHeader) error { return guard.Visible(ctx, conn, h) },
		"database/sql, in a transaction": func(ctx context.Context, h []kgo.RecordHeader) error { return guard.VisibleSQL(ctx, one, h) },
	}
}

var errPatience = errors.New("patience is over")

// On the primary, while the commit waits for a synchronous standby.
func TestVisibleOnThePrimary(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	set := func(names string) {
		r.Primary.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = '"+names+"'", "SELECT pg_reload_conf()")
		pgtest.Await(t, r.look, "SELECT current_setting('synchronous_standby_names') = $1", names)
	}
	set("absent")
	headers, join := r.commit()
	r.waits(r.primary, headers, "waits for a standby of synchronous_standby_names", func() { set("") })
	join()
}

// On a standby that applies nothing for a while, and after its promotion.
func TestVisibleOnAStandby(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	first, join := r.commit()
	join()
	r.Standby.Exec(t, "SELECT pg_wal_replay_pause()")
	await.Until(t, "the pause", func() bool {
		conn := must.Get(pgx.Connect(limited(t), r.standby))(t)
		defer conn.Close(context.Background())
		var state string
		must.OK(t, conn.QueryRow(limited(t), "SELECT pg_get_wal_replay_pause_state()").Scan(&state))
		return state == "paused"
	})
	old := r.oldViews(r.standby)
	headers, join := r.commit()
	join()
	r.waits(r.standby, headers, "the standby has replayed the log up to", func() { r.Standby.Exec(t, "SELECT pg_wal_replay_resume()") })

	for name, wait := range old {
		if err := wait(limited(t), headers); err == nil || !strings.Contains(err.Error(), "before the transaction") {
			t.Errorf("%s: %v", name, err)
		}
	}

	r.Standby.Exec(t, "SELECT pg_promote()")
	for name, wait := range visible(t, r.standby) {
		for _, h := range [][]kgo.RecordHeader{first, headers} {
			if err := wait(limited(t), h); err != nil {
				t.Errorf("%s, after the promotion: %v", name, err)
			}
		}
		if err := wait(limited(t), headersOf(1<<40, 800)); !errors.Is(err, guard.ErrOtherLog) {
			t.Errorf("%s, of an event that the new primary lacks: %v", name, err)
		}
	}
}

func TestVisibleWithoutAWait(t *testing.T) {
	url := newDatabase(t)
	pool := newPool(t, url)
	var next uint32
	var end string
	must.OK(t, pool.QueryRow(limited(t), "SELECT pg_current_xact_id()::xid::text::int8, (pg_current_wal_insert_lsn() - '0/0')::text").Scan(&next, &end))
	before := must.Get(strconv.ParseUint(end, 10, 64))(t) - 100
	for name, headers := range map[string][]kgo.RecordHeader{
		"long ago":                        headersOf(before, 3),
		"of an earlier epoch":             headersOf(before, next+1<<30),
		"a snapshot's row, or no row":     headersOf(before, 0),
		"the last transaction, by chance": headersOf(before, next),
	} {
		if err := guard.Visible(limited(t), pool, headers); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	kept := newPool(t, url+"?default_transaction_isolation=repeatable%20read")
	if err := guard.Visible(limited(t), kept, headersOf(before, next)); err != nil {
		t.Errorf("where each statement has a view of its own, and keeps it: %v", err)
	}
}

func TestVisibleRefuses(t *testing.T) {
	url := newDatabase(t)
	pool := newPool(t, url)
	good := headersOf(1, 3)
	tx := must.Get(pool.Begin(limited(t)))(t)
	defer func() { _ = tx.Rollback(context.Background()) }()
	var none *pgx.Conn
	for name, c := range map[string]struct {
		err  error
		text string
	}{
		"no deadline":   {guard.Visible(t.Context(), pool, good), "no deadline"},
		"no connection": {guard.Visible(limited(t), none, good), "no connection"},
		"a transaction": {guard.Visible(limited(t), tx, good), "before the transaction"},
		"no headers":    {guard.Visible(limited(t), pool, good[:1]), "event.position_headers"},
		"no LSN":        {guard.Visible(limited(t), pool, slices.Concat(good[:1], []kgo.RecordHeader{{Key: "cdc-lsn", Value: []byte("x/1")}}, good[2:])), `cdc-lsn is "x/1"`},
		"no xid":        {guard.Visible(limited(t), pool, append(good[:2:2], kgo.RecordHeader{Key: "cdc-xid", Value: []byte("-1")})), `cdc-xid "-1"`},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.text) {
			t.Errorf("%s: %v", name, c.err)
		}
		if is := errors.Is(c.err, guard.ErrNoPosition); is != strings.HasPrefix(c.text, "cdc-") && is != strings.HasPrefix(c.text, "event.") {
			t.Errorf("%s: ErrNoPosition %v", name, is)
		}
	}
}

// answers is a server of the answers, one for each question.
type answers struct {
	all   []string
	asked []string
}

func (a *answers) QueryRow(_ context.Context, query string, _ ...any) reply {
	a.asked = append(a.asked, query)
	next := a.all[0]
	a.all = a.all[1:]
	return reply(next)
}

type reply string

func (a reply) Scan(dest ...any) error {
	if a == "refused" {
		return refused{}
	}
	*dest[0].(*string) = string(a)
	return nil
}

// refused is an error of the server.
type refused struct{}

func (refused) Error() string    { return "refused" }
func (refused) SQLState() string { return "42601" }

// PostgreSQL 19 waits by itself, in parts; where it does not, its position is looked at.
func TestVisibleLetsTheServerWait(t *testing.T) {
	const behind, there = `{"version": 190000, "replayed": "4096"}`, `{"version": 190000, "replayed": "4352"}`
	const wait = "WAIT FOR LSN '0/1001' WITH (TIMEOUT '1000ms', NO_THROW)"
	for name, c := range map[string]struct {
		answers []string
		waits   int
	}{
		"there at once":         {[]string{there}, 0},
		"there after a while":   {[]string{behind, "timeout", behind, "success", there}, 2},
		"promoted meanwhile":    {[]string{behind, "not in recovery", `{"version": 190000, "end": "9000", "age": 5, "snapshot": "20:20:"}`}, 1},
		"the server refuses":    {[]string{behind, "refused", behind, there}, 1},
		"of an earlier version": {[]string{strings.Replace(behind, "19", "18", 1), there}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			conn := &answers{all: c.answers}
			if err := guard.Visible(limited(t), conn, headersOf(4096, 10)); err != nil || len(conn.all) > 0 {
				t.Errorf("%v, %d answers are left", err, len(conn.all))
			}
			waits := 0
			for _, query := range conn.asked {
				if query == wait {
					waits++
				}
			}
			if waits != c.waits {
				t.Errorf("%d waits: %q", waits, conn.asked)
			}
		})
	}
}
