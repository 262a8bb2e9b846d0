package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
)

const (
	writers = 4
	// bigPayload is more than fits a page: stored apart by PostgreSQL.
	bigPayload = 60_000
)

// entityKeys are aggregateids, after their aggregate; several writers write
// each.
var entityKeys = []string{"1", "-2", "клиент-3", "顧客-4", "a b", "ünï", "7", "Καλημέρα"}

// writer does random transactions, as services do, and notes them. A writer
// belongs to a single goroutine.
type writer struct {
	url    string
	number int
	random *rand.Rand
	ledger *checker.Ledger
	strict strictness
	ways   ways
	polled bool
	keys   []entity // in polled mode, the subjects locked by the transaction in progress

	conn *pgx.Conn
	tx   checker.Transaction // in progress
}

// strictness selects the expected dead letters: events with a payload of at least
// the size, of the aggregate. 0 is for none, "" for any.
type strictness struct {
	size      int
	aggregate string
}

func (s strictness) refuses(payload, aggregate string) bool {
	return s.size > 0 && len(payload) >= s.size && (s.aggregate == "" || s.aggregate == aggregate)
}

// run does a transaction at each tick until ctx ends. Errors are part of the
// game: servers restart.
func (w *writer) run(ctx context.Context, pace time.Duration) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	defer func() { w.disconnect() }()
	for {
		if err := w.transaction(); err != nil {
			w.disconnect()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (w *writer) disconnect() {
	if w.conn != nil {
		closeConn(w.conn)
		w.conn = nil
	}
}

// transaction does and notes a transaction.
func (w *writer) transaction() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if w.conn == nil {
		if w.conn, err = pgx.Connect(ctx, w.url); err != nil {
			return err
		}
	}
	w.tx = checker.Transaction{Outcome: checker.RolledBack}
	defer func() { w.ledger.Add(w.tx) }()
	if _, err := w.conn.Exec(ctx, "BEGIN"); err != nil {
		return err
	}
	if err := w.takeTurn(ctx); err != nil {
		return err
	}
	for range 1 + w.random.IntN(5) {
		if err := w.step(ctx); err != nil {
			return err
		}
	}
	if err := w.conn.QueryRow(ctx, "SELECT pg_current_xact_id()::xid::text::bigint").Scan(&w.tx.XID); err != nil {
		return err
	}
	if w.random.IntN(8) == 0 {
		_, err := w.conn.Exec(ctx, "ROLLBACK")
		return err
	}
	w.tx.Began = w.ledger.Now()
	w.tx.Outcome = checker.Unknown // until the server answers
	if _, err := w.conn.Exec(ctx, "COMMIT"); err != nil {
		return err
	}
	w.tx.Outcome = checker.Committed
	return nil
}

// step does a step of a transaction.
func (w *writer) step(ctx context.Context) error {
	switch w.random.IntN(10) {
	case 0: // a savepoint rolled back
		before := len(w.tx.Events)
		defer func() { w.tx.Events = w.tx.Events[:before] }()
		return w.all(ctx, "SAVEPOINT s", w.publish, "ROLLBACK TO SAVEPOINT s")
	case 1: // a kept savepoint, with another inside rolled back
		return w.all(ctx, "SAVEPOINT s", w.publish, "RELEASE SAVEPOINT s")
	case 2: // insert and delete: keeps the table empty, must publish
		if err := w.publish(ctx); err != nil {
			return err
		}
		last := len(w.tx.Events) - 1
		_, err := w.conn.Exec(ctx, "DELETE FROM outbox WHERE id = $1", w.tx.Events[last].ID)
		if w.polled { // unseen by anybody
			w.tx.Events = w.tx.Events[:last]
		}
		return err
	case 3, 4: // other tables
		_, err := w.conn.Exec(ctx, "UPDATE stock SET n = n + 1, filler = repeat('x', $2) WHERE id = $1",
			1+w.number*10+w.random.IntN(10), w.random.IntN(500))
		return err
	}
	return w.publish(ctx)
}

// all does statements and functions in turn.
func (w *writer) all(ctx context.Context, steps ...any) error {
	for _, step := range steps {
		var err error
		switch step := step.(type) {
		case string:
			_, err = w.conn.Exec(ctx, step)
		case func(context.Context) error:
			err = step(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// publish writes an outbox row or a message and notes the expected event.
func (w *writer) publish(ctx context.Context) error {
	ev, row := w.event()
	w.tx.Events = append(w.tx.Events, ev)
	_, err := w.conn.Exec(ctx, w.statement(), row...)
	return err
}

// event makes a random event and its row.
func (w *writer) event() (ev checker.Event, row []any) {
	of := w.entity()
	kind := []string{"Placed", "Größer", "Изменён"}[w.random.IntN(3)]
	note := w.text(w.random.IntN(20))
	ev = checker.Event{
		ID:    w.id(),
		Topic: topicOf(of.aggregate),
		// No two topics share a key: only within one topic is there an order,
		// also of dead letters.
		Key:   of.key,
		Value: w.text(1 + w.random.IntN(400)),
	}
	if w.random.IntN(40) == 0 {
		ev.Value = w.text(bigPayload)
	}
	if w.strict.size > bigPayload && w.random.IntN(200) == 0 {
		ev.Value = w.text(w.strict.size)
	}
	if w.strict.refuses(ev.Value, of.aggregate) {
		ev.Topic = deadLetter
	}
	ev.Headers = []checker.Header{{Key: "id", Value: ev.ID}, {Key: "eventType", Value: kind}, {Key: "note", Value: note}}
	return ev, []any{ev.ID, of.aggregate, ev.Key, kind, ev.Value, note}
}

// id is a random UUID (RFC 9562, version 4).
func (w *writer) id() string {
	var b [16]byte
	for i := range b {
		b[i] = byte(w.random.Uint32())
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// letters are of up to four bytes, and some need care: in JSON, in SQL, in
// COPY, at the ends of a value.
var letters = []rune("abcdefghijklmnop 0123456789\"\\'{}[]:,\t\n\räßéñжщ漢字ひ🎈\u200b\ufeff")

// text is random and has n bytes or a few more; blank only if n is 0.
func (w *writer) text(n int) string {
	if n == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteByte('p')
	for b.Len() < n {
		b.WriteRune(letters[w.random.IntN(len(letters))])
	}
	return b.String()
}

// load are the writers at work.
type load struct {
	world  *world
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// write starts the writers; each begins a transaction at each pace. The first
// goes through the proxy, and does not know the outcome of a COMMIT whose answer
// is cut off.
func (w *world) write(seed uint64, pace time.Duration, deadSize int) *load {
	w.t.Helper()
	return w.writeTo(seed, pace, strictness{size: deadSize})
}

func (w *world) writeTo(seed uint64, pace time.Duration, strict strictness) *load {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{world: w, cancel: cancel}
	for n := range writers {
		url := w.url
		if n == 0 {
			url = w.proxied()
		}
		writer := &writer{url: url, number: n, ledger: w.ledger, strict: strict, ways: w.ways, polled: w.polled,
			random: rand.New(rand.NewPCG(seed, uint64(n)))}
		l.done.Go(func() { writer.run(ctx, pace) })
	}
	w.t.Cleanup(l.stop)
	return l
}

// stop lets each writer end its transaction, and may be called again.
func (l *load) stop() {
	l.cancel()
	l.done.Wait()
}

// await returns once so many more events were committed.
func (l *load) await(events int) {
	l.world.t.Helper()
	from := l.world.ledger.Committed()
	await.Until(l.world.t, fmt.Sprintf("%d more events", events), func() bool {
		return l.world.ledger.Committed() >= from+events
	})
}

// during returns once the time has passed and an event been committed since. After
// each event, goOn may end the wait early.
func (l *load) during(d time.Duration, goOn func() bool) {
	l.world.t.Helper()
	for until := time.Now().Add(d); time.Now().Before(until) && goOn(); {
		l.await(1)
	}
}

// committed are the ids of the expected events.
func (w *world) committed() []string { return eventsOf(w.ledger.Transactions()) }

// eventsOf are the ids of the events to be published by transactions.
func eventsOf(txs []checker.Transaction) []string {
	var ids []string
	for _, tx := range txs {
		if tx.Outcome == checker.Committed {
			for _, ev := range tx.Events {
				ids = append(ids, ev.ID)
			}
		}
	}
	return ids
}

// standstill is how long nothing may arrive before missing events count as
// lost: several times the longest back-off, and more than a machine stalls.
const standstill = time.Minute

// arrived returns once everything committed has been delivered, or nothing
// comes any more: Verify then finds the loss. The load must have been stopped.
func (w *world) arrived() {
	w.t.Helper()
	ids := w.committed()
	for have := -1; len(w.reader.Records()) > have; {
		have = len(w.reader.Records())
		ctx, cancel := context.WithTimeout(context.Background(), standstill)
		err := w.reader.AwaitEvents(ctx, ids)
		cancel()
		if err == nil {
			return
		}
	}
}

// finish stops the load, waits until all is delivered, stops the connectors,
// and judges.
func (w *world) finish(load *load, connectors ...*connector) (checker.History, *checker.Report) {
	w.t.Helper()
	load.stop()
	w.arrived()
	if w.polled {
		w.wantMarked()
	}
	for _, c := range connectors {
		c.stop()
	}
	return w.verify()
}

// verify ends and judges the world's history: load and connectors must have
// been stopped.
func (w *world) verify() (checker.History, *checker.Report) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := w.reader.AwaitEnds(ctx, w.ends()); err != nil {
		w.t.Fatalf("read the topics: %v", err)
	}
	if w.all != nil {
		w.allRead() // nobody reads afterwards
	}
	w.settle()
	h := checker.History{
		Transactions: w.ledger.Transactions(),
		Records:      w.reader.Records(),
		NoPositions:  w.polled,
	}
	if !w.polled {
		h.Samples = w.watcher.Samples()
	}
	report := checker.Verify(h)
	w.t.Log(report)
	if err := report.Err(); err != nil {
		w.t.Error(err)
	}
	if report.Committed == 0 || report.Samples == 0 && !w.polled {
		w.t.Error("nothing was tested")
	}
	return h, report
}

// wantNoneAgain wants no record to have been repeated.
func (w *world) wantNoneAgain(report *checker.Report, why string) {
	w.t.Helper()
	if report.Repeated > 0 {
		w.t.Errorf("%d records came again %s", report.Repeated, why)
	}
}
