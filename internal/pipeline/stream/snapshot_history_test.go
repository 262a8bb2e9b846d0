package stream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// outboxColumns are the columns of a table behind its key.
const outboxColumns = `aggregatetype text, aggregateid text, type text, payload text`

// histories are tables of every kind of key, with the changes beside inserts.
var histories = map[string]struct {
	table            []string
	id               string // SQL for the id of a new row
	deletes, updates bool
}{
	"growing number":     {table: []string{`CREATE TABLE outbox (id bigserial PRIMARY KEY, ` + outboxColumns + `)`}, id: "DEFAULT", deletes: true},
	"random UUID":        {table: []string{`CREATE TABLE outbox (id uuid PRIMARY KEY, ` + outboxColumns + `)`}, id: "gen_random_uuid()", deletes: true},
	"UUID of version 7":  {table: []string{`CREATE TABLE outbox (id uuid PRIMARY KEY, ` + outboxColumns + `)`}, id: `(lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::int8), 12, '0') || '7' || substr(md5(random()::text), 1, 3) || '8' || substr(md5(random()::text), 1, 15))::uuid`},
	"text":               {table: []string{`CREATE TABLE outbox (id text PRIMARY KEY, ` + outboxColumns + `)`}, id: "md5(random()::text)", deletes: true},
	"no key":             {table: []string{`CREATE TABLE outbox (id text, ` + outboxColumns + `)`}, id: "gen_random_uuid()"},
	"composite key":      {table: []string{`CREATE TABLE outbox (id uuid, shard int DEFAULT random() * 9, ` + outboxColumns + `, PRIMARY KEY (shard, id))`}, id: "gen_random_uuid()", deletes: true},
	"partitions":         {table: []string{`CREATE TABLE outbox (id uuid, shard int DEFAULT floor(random() * 4), ` + outboxColumns + `, PRIMARY KEY (shard, id)) PARTITION BY LIST (shard)`, `CREATE TABLE p3 PARTITION OF outbox FOR VALUES IN (3)`, `CREATE TABLE p0 PARTITION OF outbox FOR VALUES IN (0)`, `CREATE TABLE p1 PARTITION OF outbox FOR VALUES IN (1) PARTITION BY LIST (shard)`, `CREATE TABLE p11 PARTITION OF p1 FOR VALUES IN (1)`, `CREATE TABLE p2 PARTITION OF outbox FOR VALUES IN (2)`}, id: "gen_random_uuid()", deletes: true},
	"updates":            {table: []string{`CREATE TABLE outbox (id uuid PRIMARY KEY, ` + outboxColumns + `)`}, id: "gen_random_uuid()", deletes: true, updates: true},
	"updates of numbers": {table: []string{`CREATE TABLE outbox (id bigserial PRIMARY KEY, ` + outboxColumns + `)`}, id: "DEFAULT", updates: true},
}

// A snapshot is interrupted again and again, by stops and by broken connections, while rows
// come, go and change, some in subtransactions, some rolled back. Every row that stays is
// published. None comes twice if only later rows change and no checkpoint is lost; with
// exactly-once delivery never, and a change of earlier rows ends the run.
func TestSnapshotHistories(t *testing.T) {
	for name, h := range histories {
		for _, changes := range []string{"later rows change", "any rows change"} {
			for _, delivery := range []string{"at least once", "checkpoints are lost", "exactly once"} {
				t.Run(fmt.Sprintf("%s, %s, %s", name, changes, delivery), func(t *testing.T) {
					const seed = 1
					d := outbox(t)
					d.exec("DROP TABLE outbox")
					for _, sql := range h.table {
						d.exec(sql)
					}
					random := rand.New(rand.NewPCG(seed, 40))
					w := &writers{d: d, id: h.id, deletes: h.deletes, updates: h.updates, any: changes == "any rows change",
						loses: delivery == "checkpoints are lost", transacts: delivery == "exactly once"}
					d.opts.Snapshot, d.opts.DrainTimeout, d.opts.MaxBufferedBytes = true, time.Millisecond, 12_000
					w.insert(300 + random.IntN(300))
					stop := w.start(2, seed)
					for n := range 2 + random.IntN(3) {
						w.interrupted(1+random.IntN(250), random.IntN(2) == 0)
						if n == 0 {
							w.laterFrom()
						}
					}
					w.finish(stop)
				})
			}
		}
	}
}

// limited is a sink that takes so many events, and then none.
type limited struct {
	gate
	mu    sync.Mutex
	topic *topic
	left  int
	grown chan struct{} // closed by more; nil: nobody waits
}

func (l *limited) Deliver(ctx context.Context, events []*transform.Event, _ sink.Reject) error {
	for {
		wait := l.take(len(events))
		if wait == nil {
			l.topic.write(events)
			return nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take takes n events, or returns what ends the wait for room.
func (l *limited) take(n int) (wait chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left > 0 {
		l.left -= n
		return nil
	}
	if l.grown == nil {
		l.grown = make(chan struct{})
	}
	return l.grown
}

// more takes so many events more.
func (l *limited) more(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left += n
	if l.left > 0 && l.grown != nil {
		close(l.grown)
		l.grown = nil
	}
}

// limitedTransactor writes events and checkpoint at once.
type limitedTransactor struct {
	transactor
	to    *limited
	store *fakeStore
}

func (x *limitedTransactor) Transact(ctx context.Context, entries []sink.Entry, _ *kgo.Record) ([]sink.Refusal, error) {
	events := make([]*transform.Event, len(entries))
	for i, e := range entries {
		events[i] = e.Event
	}
	if err := x.to.Deliver(ctx, events, nil); err != nil {
		return nil, err
	}
	return nil, x.store.Save(ctx, x.cp)
}

func (l *limited) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left <= 0
}

// writers change the outbox at random.
type writers struct {
	d                *database
	id               string
	deletes, updates bool
	any              bool // changes are of all rows, not only of rows after the slot's snapshot
	loses, transacts bool // checkpoints; delivery is exactly once

	mu       sync.Mutex
	written  []string // committed, in no order
	from     int      // index of the first that may change; 0: none may
	deleted  map[string]bool
	problems []error
}

// laterFrom lets the writers change rows, once the slot is there.
func (w *writers) laterFrom() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.from = len(w.written)
}

func (w *writers) insert(n int) { w.run(w.d.conn, "", n, rand.New(rand.NewPCG(9, 9))) }

// start runs n writers until the returned function is called.
func (w *writers) start(n int, seed uint64) (stop func()) {
	ctx, cancel := context.WithCancel(w.d.t.Context())
	var all sync.WaitGroup
	for i := range n {
		conn := must.Get(pgx.Connect(ctx, w.d.url))(w.d.t)
		all.Go(func() {
			defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			for ctx.Err() == nil {
				w.step(conn, random)
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
		for _, err := range w.problems {
			w.d.t.Error(err)
		}
	}
}

// step is a transaction of a writer.
func (w *writers) step(conn *pgx.Conn, random *rand.Rand) {
	switch pick := random.IntN(10); {
	case pick == 0 && w.deletes:
		w.change(conn, random, "DELETE FROM outbox WHERE id::text = $1", true)
	case pick == 1 && w.updates:
		w.change(conn, random, "UPDATE outbox SET payload = repeat('x', 2000) WHERE id::text = $1", false)
	default:
		w.run(conn, fmt.Sprintf("SELECT pg_sleep(%f)", random.Float64()/50), 1+random.IntN(3), random)
	}
}

// run inserts n rows, and as many more in subtransactions, every second rolled back.
func (w *writers) run(conn *pgx.Conn, sleep string, n int, random *rand.Rand) {
	ctx := context.Background()
	insert := `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (` + w.id + `, 'order', 'o', 'Placed', repeat('y', 30)) RETURNING id::text`
	var ids []string
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for range n {
			var id string
			if err := tx.QueryRow(ctx, insert).Scan(&id); err != nil {
				return err
			}
			ids = append(ids, id)
		}
		sub, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		var id string
		if err := sub.QueryRow(ctx, insert).Scan(&id); err != nil {
			return err
		}
		if sleep != "" {
			if _, err := sub.Exec(ctx, sleep); err != nil {
				return err
			}
		}
		if random.IntN(2) == 0 {
			return sub.Rollback(ctx)
		}
		ids = append(ids, id)
		return sub.Commit(ctx)
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.problems = append(w.problems, err)
		return
	}
	w.written = append(w.written, ids...)
}

// change deletes or updates a row of any writer.
func (w *writers) change(conn *pgx.Conn, random *rand.Rand, sql string, deletes bool) {
	w.mu.Lock()
	first := w.from
	if w.any {
		first = 0
	}
	if w.from == 0 || first == len(w.written) {
		w.mu.Unlock()
		return
	}
	id := w.written[first+random.IntN(len(w.written)-first)]
	if deletes && w.any { // or the stream has the row
		if w.deleted == nil {
			w.deleted = make(map[string]bool)
		}
		w.deleted[id] = true
	}
	w.mu.Unlock()
	if _, err := conn.Exec(context.Background(), sql, id); err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.problems = append(w.problems, err)
	}
}

// instance starts one with the sink.
func (w *writers) instance(out *limited) (*instance, *forgetting) {
	w.d.t.Helper()
	if w.transacts {
		x := &limitedTransactor{to: out, store: w.d.store}
		return w.d.startWith(Parts{Store: w.d.store, Transactions: &Transactions{Sink: x, Marker: x}}), nil
	}
	s := &forgetting{fakeStore: w.d.store}
	return w.d.start(s, out), s
}

// interrupted runs an instance until it has published n events. cut: the connections of
// the instance break then, and it publishes n more.
func (w *writers) interrupted(n int, cut bool) {
	d := w.d
	d.t.Helper()
	out := &limited{topic: d.topic, left: n}
	i, s := w.instance(out)
	full := func() { eventually(d.t, "the sink to be full", func() bool { return out.full() || i.ended() }) }
	full()
	if cut {
		d.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%tableoid%' AND pid <> pg_backend_pid()`)
		out.more(n + 100) // some went beyond
		full()
	}
	if i.ended() && !w.refused(i) {
		d.t.Fatalf("Run = %v", i.err)
	}
	if w.loses {
		s.lose()
	}
	i.cancel()
	<-i.done
}

// refused reports whether an instance has rightly refused to go on.
func (w *writers) refused(i *instance) bool {
	return w.transacts && w.any && failure.ClassOf(i.err) == failure.Config && strings.Contains(i.err.Error(), "rows of public.outbox in the slot's snapshot")
}

// finish runs the last instance to the end of the snapshot, stops the writers and judges.
func (w *writers) finish(stop func()) {
	t := w.d.t
	t.Helper()
	i, _ := w.instance(&limited{topic: w.d.topic, left: 1 << 30})
	eventually(t, "the end of the snapshot", func() bool { return !w.d.store.stored().Snapshot || i.ended() })
	stop()
	once := w.transacts || !w.loses && !w.any
	if i.ended() {
		if !w.refused(i) {
			t.Fatalf("Run = %v", i.err)
		}
		w.again(once)
		return
	}
	w.judge(i, once)
	i.stop()
}

// forgetting is a store that may lose saves.
type forgetting struct {
	*fakeStore
	mu    sync.Mutex
	loses bool
}

func (s *forgetting) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loses = true
}

func (s *forgetting) Save(ctx context.Context, cp checkpoint.Checkpoint) error {
	s.mu.Lock()
	loses := s.loses
	s.mu.Unlock()
	if loses {
		return errors.New("lost")
	}
	return s.fakeStore.Save(ctx, cp)
}

// judge waits until all rows that stay are published, and counts them. once: none may be
// published twice.
func (w *writers) judge(i *instance, once bool) {
	t := w.d.t
	t.Helper()
	end := w.d.lsn("SELECT pg_current_wal_flush_lsn()::text")
	eventually(t, "the stream to the end", func() bool { return i.status().ReceivedLSN != "" && w.d.store.stored().LSN >= end })
	seen := make(map[string]bool)
	for _, id := range w.d.topic.ids() {
		seen[id] = true
	}
	var lost []string
	for _, id := range w.written {
		if !seen[id] && !w.deleted[id] {
			lost = append(lost, id)
		}
	}
	if len(lost) > 0 {
		t.Errorf("%d of %d rows are lost: %v", len(lost), len(w.written), lost[:min(5, len(lost))])
	}
	w.again(once)
}

// again counts the events that came twice. At least once, a part of a transaction of the
// stream may.
func (w *writers) again(once bool) {
	w.d.t.Helper()
	var ids []string
	all := w.d.topic.all()
	for _, r := range all {
		if w.transacts || len(all) > 0 && r.position.CommitLSN == all[0].position.CommitLSN {
			ids = append(ids, r.id)
		}
	}
	slices.Sort(ids)
	if again := len(ids) - len(slices.Compact(ids)); once && again > 0 {
		w.d.t.Errorf("%d of %d rows came twice", again, len(w.written))
	}
}
