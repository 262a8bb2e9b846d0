package outbox_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/envelope"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// A savepoint's rollback takes the savepoint's events, and no others.
func TestEventsOfASavepoint(t *testing.T) {
	url := newDB(t, outbox.Schema)
	read := listen(t, url)
	tx := begin(t, url)
	write := func(tx pgx.Tx, id string) {
		t.Helper()
		if _, err := outbox.Write(t.Context(), tx, order(id)); err != nil {
			t.Fatal(err)
		}
		if _, err := outbox.Emit(t.Context(), tx, order(id)); err != nil {
			t.Fatal(err)
		}
	}
	write(tx, "before")
	for _, end := range []struct {
		id string
		do func(pgx.Tx, context.Context) error
	}{{"dropped", pgx.Tx.Rollback}, {"kept", pgx.Tx.Commit}} {
		savepoint, err := tx.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		write(savepoint, end.id)
		if err := end.do(savepoint, t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := outbox.Write(t.Context(), savepoint, order("late")); !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("writing in a savepoint that has ended: %v", err)
		}
	}
	write(tx, "after")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"before", "kept", "after"}
	var rows, messages []string
	for _, row := range readRows(t, url, "outbox", debezium...) {
		rows = append(rows, row.AggregateID)
	}
	for _, m := range read() {
		var got envelope.Message
		if err := got.Decode(m.Content); err != nil {
			t.Fatal(err)
		}
		messages = append(messages, string(got.AggregateID))
	}
	if !slices.Equal(rows, want) || !slices.Equal(messages, want) {
		t.Errorf("rows %q and messages %q, want %q", rows, messages, want)
	}
}

func TestATransactionThatHasEndedIsAnError(t *testing.T) {
	url := newDB(t, outbox.Schema)
	tx := begin(t, url)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	sqlTx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sqlTx.Rollback(); err != nil {
		t.Fatal(err)
	}
	w := newWriter(t, outbox.Options{})
	for name, write := range map[string]func(context.Context, outbox.Tx, ...outbox.Event) ([]uuid.UUID, error){"Write": w.Write, "Emit": w.Emit} {
		if _, err := write(t.Context(), outbox.PGX(tx), order("1")); !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("%s with pgx: %v", name, err)
		}
		if _, err := write(t.Context(), outbox.SQL(sqlTx), order("1")); !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("%s with database/sql: %v", name, err)
		}
	}
}

func TestVeryManyEventsTakeAStatementPerThousand(t *testing.T) {
	const n = 100_000
	events := make([]outbox.Event, n)
	for i := range events {
		events[i] = order(fmt.Sprint(i))
	}
	for name, write := range map[string]func(context.Context, outbox.SQLTx, ...outbox.Event) ([]uuid.UUID, error){
		"write": outbox.WriteSQL, "emit": outbox.EmitSQL,
	} {
		tx := &recorder{}
		ids, err := write(t.Context(), tx, events...)
		if err != nil || len(ids) != n || len(tx.statements) != n/1000 {
			t.Errorf("%s: %d ids, %d statements, %v", name, len(ids), len(tx.statements), err)
		}
		if !slices.IsSortedFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }) {
			t.Errorf("%s: the ids do not ascend", name)
		}
	}
}

func TestIDsOfConcurrentWritersAreUniqueAndAscend(t *testing.T) {
	const writers, each = 8, 20_000
	made := make([][]uuid.UUID, writers)
	var done sync.WaitGroup
	for w := range made {
		done.Go(func() {
			for range each {
				id, err := outbox.NewID()
				if err != nil {
					t.Error(err)
					return
				}
				made[w] = append(made[w], id)
			}
		})
	}
	done.Wait()
	seen := make(map[uuid.UUID]bool, writers*each)
	for _, ids := range made {
		for i, id := range ids {
			if seen[id] || i > 0 && bytes.Compare(ids[i-1][:], id[:]) >= 0 {
				t.Fatalf("id %s was made before, or does not follow %s", id, ids[max(i-1, 0)])
			}
			seen[id] = true
		}
	}
}
