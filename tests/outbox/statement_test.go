package outbox_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/outbox"
)

func TestLargeEventsAreSplitIntoStatements(t *testing.T) {
	tx := &recorder{}
	w := newWriter(t, outbox.Options{Payload: outbox.Text, MaxBytes: 5 << 20})
	events := make([]outbox.Event, 5)
	for i, size := range []int{3 << 20, 3 << 20, 1 << 18, 1 << 18, 5<<20 - 1} {
		events[i] = order("1")
		events[i].Payload = bytes.Repeat([]byte{'x'}, size)
	}
	if _, err := w.Write(t.Context(), outbox.SQL(tx), events...); err != nil {
		t.Fatal(err)
	}
	var counts []int
	for _, args := range tx.args {
		counts = append(counts, strings.Count(args[1].(string), "order"))
	}
	if fmt.Sprint(counts) != "[1 3 1]" {
		t.Errorf("events in statements: %v, want [1 3 1]", counts)
	}
}

func TestIDsAreKnownToTheCaller(t *testing.T) {
	given := uuid.MustParse("0190b8f0-0000-7000-8000-000000000001")
	a, b, c := order("1"), order("2"), order("3")
	b.ID = given
	ids, err := outbox.WriteSQL(t.Context(), &recorder{}, a, b, c)
	if err != nil {
		t.Fatal(err)
	}
	if len(ids) != 3 || ids[1] != given {
		t.Fatalf("ids %v, want the given one in the middle", ids)
	}
	if ids[0].Version() != 7 || ids[2].Version() != 7 || bytes.Compare(ids[0][:], ids[2][:]) >= 0 {
		t.Errorf("made ids %s and %s, want ascending ones of version 7", ids[0], ids[2])
	}
}

func TestNoTransactionIsAnError(t *testing.T) {
	var (
		sqlTx *sql.Tx
		pgxTx pgx.Tx
	)
	for name, write := range map[string]func() ([]uuid.UUID, error){
		"nil *sql.Tx":      func() ([]uuid.UUID, error) { return outbox.WriteSQL(t.Context(), sqlTx, order("1")) },
		"nil pgx.Tx":       func() ([]uuid.UUID, error) { return outbox.Write(t.Context(), pgxTx, order("1")) },
		"emit nil *sql.Tx": func() ([]uuid.UUID, error) { return outbox.EmitSQL(t.Context(), sqlTx) },
		"emit nil pgx.Tx":  func() ([]uuid.UUID, error) { return outbox.Emit(t.Context(), pgxTx) },
	} {
		if _, err := write(); err == nil || !strings.Contains(err.Error(), "transaction is nil") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNoEventsAskNothing(t *testing.T) {
	tx := &recorder{}
	if ids, err := outbox.WriteSQL(t.Context(), tx); err != nil || len(ids) != 0 || len(tx.statements) != 0 {
		t.Errorf("ids %v, error %v, statements %v", ids, err, tx.statements)
	}
}

func TestContextHeadersYieldToTheEventsOwn(t *testing.T) {
	type tenant struct{}
	shared := map[string]string{}
	w := newWriter(t, outbox.Options{ContextHeaders: func(ctx context.Context) map[string]string {
		shared["tenant"], shared["region"] = ctx.Value(tenant{}).(string), "eu"
		return shared
	}})
	own := order("1")
	own.Headers = map[string]string{"tenant": "own"}
	tx := &recorder{}
	ctx := context.WithValue(t.Context(), tenant{}, "acme")
	if _, err := w.Write(ctx, outbox.SQL(tx), own, order("2")); err != nil {
		t.Fatal(err)
	}
	const want = `{"{\"region\":\"eu\",\"tenant\":\"own\"}","{\"region\":\"eu\",\"tenant\":\"acme\"}"}`
	if got := tx.args[0][5]; got != want {
		t.Errorf("headers %v\nwant    %s", got, want)
	}
	if len(own.Headers) != 1 || shared["tenant"] != "acme" {
		t.Errorf("a map was changed: %v, %v", own.Headers, shared)
	}
}

// recorder is a transaction that only notes the calls.
type recorder struct {
	statements []string
	args       [][]any
	err        error
}

func (r *recorder) ExecContext(_ context.Context, statement string, args ...any) (sql.Result, error) {
	r.statements, r.args = append(r.statements, statement), append(r.args, args)
	return nil, r.err
}

func (*recorder) Commit() error   { return nil }
func (*recorder) Rollback() error { return nil }
