package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/envelope"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

const typeText = 25

// relation is a table with the columns of an outbox.
func relation(oid uint32, name string) *pg.Relation {
	rel := &pg.Relation{OID: oid, Namespace: "public", Name: name}
	for _, c := range []string{"id", "aggregatetype", "aggregateid", "type", "payload"} {
		rel.Columns = append(rel.Columns, pg.Column{Name: c, Type: typeText})
	}
	return rel
}

var outboxRelation, audit = relation(1, "outbox"), relation(2, "audit")

func testIntake(t testing.TB, onUpdate string) (*intake, *counts) {
	t.Helper()
	m := &counts{}
	router := must.Get(transform.New(transform.DefaultEvent(), transform.DefaultRoute()))(t)
	tracker := checkpoint.NewLocked(0)
	p := Parts{Options: defaultOptions(), Router: router, Metrics: m}
	p.OnUpdate = onUpdate
	checkpointer := newCheckpointer(&fakeStore{}, tracker, time.Second, m, zap.NewNop())
	return newIntake(p, newOutboxTables(p.Tables, checkpointer), newQueue(1<<20), tracker, checkpointer, digest.New(zap.NewNop())), m
}

// row is a change of the given kind; the event id has its place.
func row(kind wal.Kind, rel *pg.Relation, lsn pg.LSN, seq uint32) *wal.Message {
	m := &wal.Message{Kind: kind}
	m.Row.Relation, m.Row.Position, m.Row.XID = rel, pg.Position{CommitLSN: lsn, Seq: seq}, uint32(lsn)
	for _, v := range []string{fmt.Sprintf("%d/%d", lsn, seq), "order", "o-1", "Placed", "{}"} {
		m.Row.Values = append(m.Row.Values, pg.Value{Kind: pg.Text, Data: []byte(v)})
	}
	return m
}

func insert(lsn pg.LSN, seq uint32) *wal.Message { return row(wal.Insert, outboxRelation, lsn, seq) }
func commit(end pg.LSN) *wal.Message             { return &wal.Message{Kind: wal.Commit, End: end} }
func idle(pos pg.LSN) *wal.Message               { return &wal.Message{Kind: wal.Keepalive, End: pos} }

// again stands for a new connection, with a stream from start.
func again(start pg.LSN) *wal.Message { return &wal.Message{End: start} }

// accepted returns the ids of the messages' events.
func accepted(t *testing.T, in *intake, messages ...*wal.Message) []string {
	t.Helper()
	for _, m := range messages {
		accept := in.accept
		if m.Kind == 0 {
			accept = func(_ context.Context, m *wal.Message) error {
				return in.resume(checkpoint.Past{Start: m.End, Known: in.reading.End(), Since: checkpoint.Landmark{Commit: in.reading.End()}})
			}
		}
		must.OK(t, accept(t.Context(), m))
	}
	return queued(in.queue)
}

func queued(q *queue) (ids []string) {
	for _, it := range q.take(nil) {
		ids = append(ids, string(it.Event.ID))
	}
	return ids
}

// loose is a message of no transaction.
func loose(pos pg.LSN) *wal.Message {
	m := &wal.Message{Kind: wal.LogicalMessage, Prefix: "outbox", NonTransactional: true}
	m.Row.Position.CommitLSN = pos
	m.Content, _ = envelope.Encode(&envelope.Message{ID: fmt.Appendf(nil, "loose %d", pos)})
	return m
}

// told is a message of a transaction.
func told(lsn pg.LSN, seq uint32) *wal.Message {
	m := loose(lsn)
	m.NonTransactional = false
	m.Row.Position.Seq, m.Row.XID = seq, uint32(lsn)
	m.Content, _ = envelope.Encode(&envelope.Message{ID: fmt.Appendf(nil, "told %d/%d", lsn, seq)})
	return m
}

func TestIntake(t *testing.T) {
	for name, c := range map[string]struct {
		messages []*wal.Message
		events   []string
		end      pg.LSN
	}{
		"takes in the inserts of a transaction": {
			[]*wal.Message{insert(10, 0), insert(10, 1), commit(15)}, []string{"10/0", "10/1"}, 15},
		"passes over other tables": {
			[]*wal.Message{row(wal.Insert, audit, 10, 0), insert(10, 1), row(wal.Insert, audit, 10, 2), commit(15)}, []string{"10/1"}, 15},
		"passes over updates, deletes and truncates": {
			[]*wal.Message{insert(10, 0), row(wal.Update, outboxRelation, 10, 1), row(wal.Delete, outboxRelation, 10, 2), row(wal.Truncate, outboxRelation, 10, 3), commit(15)},
			[]string{"10/0"}, 15},
		"takes a whole transaction once after a reconnect": {
			[]*wal.Message{insert(10, 0), commit(15), insert(20, 0), insert(20, 1), again(15), insert(20, 0), insert(20, 1), insert(20, 2), commit(25)},
			[]string{"10/0", "20/0", "20/1", "20/2"}, 25},
		"takes a transaction cut before its commit once": {
			[]*wal.Message{insert(20, 0), insert(20, 1), again(1), insert(20, 0), insert(20, 1), commit(25), insert(30, 0), commit(35)},
			[]string{"20/0", "20/1", "30/0"}, 35},
		"passes over all that it has taken in since the slot's position": {
			[]*wal.Message{insert(10, 0), commit(15), insert(20, 0), commit(25), idle(30), insert(40, 0), again(5),
				insert(10, 0), commit(15), idle(18), insert(20, 0), commit(25), idle(30), insert(40, 0), insert(40, 1), commit(45)},
			[]string{"10/0", "20/0", "40/0", "40/1"}, 45},
		"passes over what another process has taken in": {
			[]*wal.Message{idle(30), again(5), insert(10, 0), commit(15), insert(20, 0), commit(25), idle(30), insert(40, 0), commit(45)},
			[]string{"40/0"}, 45},
		"takes a message of no transaction and the transaction at its position": {
			[]*wal.Message{insert(10, 0), commit(15), loose(20), insert(20, 0), commit(25)}, []string{"10/0", "loose 20", "20/0"}, 25},
		"takes a message of no transaction once after a reconnect": {
			[]*wal.Message{loose(20), insert(30, 0), again(10), loose(20), insert(30, 0), insert(30, 1), commit(35), again(30), insert(30, 0), insert(30, 1), loose(35), commit(35)},
			[]string{"loose 20", "30/0", "30/1"}, 35},
		"takes a message of a transaction once after a reconnect": {
			[]*wal.Message{told(20, 0), insert(20, 1), again(10), told(20, 0), insert(20, 1), told(20, 2), commit(25)},
			[]string{"told 20/0", "20/1", "told 20/2"}, 25},
		"ends a message of no transaction with itself": {
			[]*wal.Message{insert(10, 0), commit(15), loose(20)}, []string{"10/0", "loose 20"}, 20},
		"takes idle positions": {
			[]*wal.Message{insert(10, 0), commit(15), idle(40)}, []string{"10/0"}, 40},
		"never goes back to an idle position": {
			[]*wal.Message{idle(40), idle(30)}, nil, 40},
	} {
		t.Run(name, func(t *testing.T) {
			in, _ := testIntake(t, transform.UpdateWarn)
			if got := accepted(t, in, c.messages...); !slices.Equal(got, c.events) {
				t.Errorf("took in %v, want %v", got, c.events)
			}
			if in.reading.End() != c.end || in.tracker.InFlight() != len(c.events) {
				t.Errorf("ends at %v with %d in flight, want %v with %d", in.reading.End(), in.tracker.InFlight(), c.end, len(c.events))
			}
		})
	}
}

func TestIntakeHoldsThePositionOverACutTransaction(t *testing.T) {
	in, _ := testIntake(t, transform.UpdateWarn)
	accepted(t, in, idle(10), insert(20, 0))
	in.tracker.Done(1, 1) // acked before its transaction ended
	accepted(t, in, again(10), idle(15))
	if got := in.tracker.Position(); got != 10 {
		t.Errorf("position %v within a transaction, want 10", got)
	}
	accepted(t, in, insert(20, 0), commit(25))
	if got := in.tracker.Position(); got != 25 {
		t.Errorf("position %v after its end, want 25", got)
	}
}

func TestIntakeForgetsAnEventThatFoundNoRoom(t *testing.T) {
	in, _ := testIntake(t, transform.UpdateWarn)
	in.queue = newQueue(1)
	accepted(t, in, insert(10, 0)) // fills the bound
	cause := errors.New("connection broke")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := in.accept(ctx, insert(10, 1)); !errors.Is(err, cause) {
		t.Fatalf("accept = %v, want the context's cause", err)
	}
	if got := in.tracker.InFlight(); got != 1 {
		t.Errorf("%d in flight, want 1", got)
	}
	in.queue = newQueue(1 << 20)
	if got := accepted(t, in, again(5), insert(10, 0), insert(10, 1), commit(15)); !slices.Equal(got, []string{"10/1"}) {
		t.Errorf("after the reconnect took in %v, want 10/1", got)
	}
}

// The transaction of an event without room may never come again: the stream goes on on
// another server.
func TestIntakeWaitsForNoTransactionOfAnEventThatFoundNoRoom(t *testing.T) {
	in, _ := testIntake(t, transform.UpdateWarn)
	in.queue = newQueue(1)
	accepted(t, in, insert(10, 0), commit(15)) // fills the bound
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := in.accept(ctx, insert(20, 0)); err == nil {
		t.Fatal("an event found room beyond the bound")
	}
	in.tracker.Done(1, 1)
	accepted(t, in, again(15), idle(30))
	if got := in.tracker.Position(); got != 30 {
		t.Errorf("the position stays at %v, want 30", got)
	}
}

// Failure mode 19.
func TestIntakeOnUpdate(t *testing.T) {
	for policy, class := range map[string]failure.Class{
		transform.UpdateWarn: failure.Transient, transform.UpdateError: failure.Transient, transform.UpdateFatal: failure.Config,
	} {
		t.Run(policy, func(t *testing.T) {
			in, m := testIntake(t, policy)
			err := in.accept(t.Context(), row(wal.Update, outboxRelation, 10, 0))
			if failure.ClassOf(err) != class || (err != nil) != (class == failure.Config) {
				t.Errorf("accept = %v", err)
			}
			if !slices.Equal(m.ignored, []string{"update"}) {
				t.Errorf("counted %v", m.ignored)
			}
			if err := in.accept(t.Context(), row(wal.Update, audit, 10, 1)); err != nil {
				t.Errorf("update of another table: %v", err)
			}
		})
	}
}

// An update in a passed over transaction ends nothing, an update in another does.
func TestIntakePassesOverAnUpdate(t *testing.T) {
	in, _ := testIntake(t, transform.UpdateFatal)
	refused := row(wal.Update, outboxRelation, 10, 0)
	must.OK(t, in.resume(checkpoint.Past{Skip: checkpoint.LandmarkOf(&refused.Row)}))
	if err := in.accept(t.Context(), refused); err != nil {
		t.Errorf("accept = %v", err)
	}
	err := in.accept(t.Context(), row(wal.Update, outboxRelation, 20, 0))
	if want := "--skip-to 0/14`"; failure.ClassOf(err) != failure.Config || !strings.Contains(failure.RemedyOf(err), want) {
		t.Errorf("accept = %v, remedy %q; want one with %s", err, failure.RemedyOf(err), want)
	}
}

// Without a checkpoint no transaction to pass over can be noted, so no remedy offers to.
func TestNothingIsPassedOverWithoutACheckpoint(t *testing.T) {
	in, _ := testIntake(t, transform.UpdateFatal)
	none := &Options{Checkpoint: store.Options{Store: store.StoreNone}}
	in.skipRemedy = none.skipRemedy
	err := in.accept(t.Context(), row(wal.Update, outboxRelation, 20, 0))
	ev := &transform.Event{XID: 700, Position: pg.Position{CommitLSN: 20}}
	for want, remedy := range map[string]string{
		"event.on_update to warn": failure.RemedyOf(err),
		"dead_letter":             none.stopRemedy(ev, &transform.BadEvent{Reason: transform.ReasonNullKey}),
	} {
		if !strings.Contains(remedy, want) || strings.Contains(remedy, "--skip-to") {
			t.Errorf("remedy %q", remedy)
		}
	}
}

func TestIntakeQueuesABadEvent(t *testing.T) {
	in, _ := testIntake(t, transform.UpdateWarn)
	m := insert(10, 0)
	m.Row.Values[2] = pg.Value{Kind: pg.Null} // the key
	must.OK(t, in.accept(t.Context(), m))
	batch := in.queue.take(nil)
	if len(batch) != 1 || batch[0].Bad == nil || batch[0].Bad.Reason != transform.ReasonNullKey {
		t.Errorf("queued %+v, want one bad event", batch)
	}
}

// The first transaction of a new slot's stream may have the snapshot's position.
func TestIntakeTellsTheStreamFromTheSnapshotAtItsPosition(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, url, outboxTable, "INSERT INTO outbox SELECT n::text, 'order', 'o', 'Placed', '{}' FROM generate_series(1, 3) n")
	conn := must.Get(catalog.Connect(t.Context(), url))(t)
	defer catalog.Close(conn)
	in, _ := testIntake(t, transform.UpdateWarn)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	acks := make(chan []string)
	go func() { // the delivery
		batch, _ := in.queue.fetch(ctx, 0, nil)
		var ids []string
		for len(batch) > 0 {
			for _, it := range batch {
				ids = append(ids, string(it.Event.ID))
				in.tracker.Done(it.ticket, 1)
			}
			batch, _ = in.queue.fetch(ctx, 0, nil)
		}
		acks <- ids
	}()
	table := pg.Table{Schema: "public", Name: "outbox"}
	rel, _, err := catalog.ReadColumns(t.Context(), conn, table)
	must.OK(t, err)
	in.initial.set(&checkpoint.Initial{Tables: make([]checkpoint.InitialTable, 1)})
	from := catalog.Snapshot{Table: table, Relation: rel, Position: pg.Position{CommitLSN: 10}}
	must.OK(t, catalog.ReadSnapshot(t.Context(), conn, from, func(row *pg.Row) error {
		return in.snapshotRow(t.Context(), row, rowPlace{seq: row.Position.Seq})
	}))
	must.OK(t, in.endSnapshot(t.Context(), 10))
	in.queue.close()
	if got := <-acks; !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("the snapshot published %v", got)
	}
	in.queue = newQueue(1 << 20)
	if got := accepted(t, in, insert(10, 0), commit(15)); !slices.Equal(got, []string{"10/0"}) {
		t.Errorf("the stream's first transaction gave %v, want 10/0", got)
	}
	if got := in.tracker.InFlight(); got != 1 {
		t.Errorf("%d in flight, want 1", got)
	}
}

const outboxTable = `CREATE TABLE outbox (id text PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text)`
