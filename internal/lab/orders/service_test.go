package orders

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// newDB returns a database with the tables.
func newDB(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), pgtest.Shared(t).NewDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for range 2 { // the second time changes nothing
		if err := CreateTables(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
	return pool
}

// steps runs n transactions and returns them.
func steps(t *testing.T, s *Service, n int) []Change {
	t.Helper()
	changes := make([]Change, n)
	for i := range changes {
		c, err := s.Step(t.Context())
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		changes[i] = c
	}
	return changes
}

// event is an outbox row.
type event struct{ ID, AggregateType, AggregateID, Type, Payload string }

func written(t *testing.T, db *pgxpool.Pool) map[string]event {
	t.Helper()
	rows, err := db.Query(t.Context(), `SELECT id::text, aggregatetype, aggregateid, type, payload::text FROM outbox`)
	if err != nil {
		t.Fatal(err)
	}
	events, err := pgx.CollectRows(rows, pgx.RowToStructByPos[event])
	if err != nil {
		t.Fatal(err)
	}
	byID := make(map[string]event, len(events))
	for _, e := range events {
		byID[e.ID] = e
	}
	return byID
}

func TestOrdersPassThroughTheirStatusesInTurn(t *testing.T) {
	s := &Service{DB: newDB(t)}
	var got []string
	for _, c := range steps(t, s, 11) {
		got = append(got, fmt.Sprintf("%d %s", c.Order.ID, c.EventType))
	}
	want := []string{
		"1 OrderPlaced", "2 OrderPlaced", "3 OrderPlaced",
		"1 OrderPaid", "2 OrderPaid", "3 OrderPaid",
		"1 OrderShipped", "4 OrderPlaced",
		"2 OrderShipped", "5 OrderPlaced",
		"3 OrderShipped",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestEachTransactionWritesBothRowsOrNeither(t *testing.T) {
	for _, tt := range []struct {
		name          string
		rollbackEvery int
		committed     int
	}{
		{"nothing rolled back", 0, 30},
		{"every fourth rolled back", 4, 23},
		{"everything rolled back", 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			db := newDB(t)
			changes := steps(t, &Service{DB: db, RollbackEvery: tt.rollbackEvery}, 30)

			events := written(t, db)
			if len(events) != tt.committed {
				t.Errorf("%d events in the outbox, want %d", len(events), tt.committed)
			}
			last := map[int64]Status{}
			for _, c := range changes {
				e, found := events[c.EventID]
				if found == c.RolledBack {
					t.Errorf("event %s: rolled back %v, in the outbox %v", c.EventID, c.RolledBack, found)
				}
				if found {
					last[c.Order.ID] = c.Order.Status
					checkEvent(t, e, c)
				}
			}
			checkOrders(t, db, last)
		})
	}
}

func checkEvent(t *testing.T, e event, c Change) {
	t.Helper()
	if e.AggregateType != "order" || e.AggregateID != fmt.Sprint(c.Order.ID) || e.Type != c.EventType {
		t.Errorf("outbox row %+v of change %+v", e, c)
	}
	var payload Order
	if err := json.Unmarshal([]byte(e.Payload), &payload); err != nil {
		t.Fatal(err)
	}
	if payload != c.Order {
		t.Errorf("payload %+v, want %+v", payload, c.Order)
	}
}

// checkOrders compares the business table with the last status of each order.
func checkOrders(t *testing.T, db *pgxpool.Pool, want map[int64]Status) {
	t.Helper()
	rows, err := db.Query(t.Context(), `SELECT id, status FROM orders`)
	if err != nil {
		t.Fatal(err)
	}
	got := map[int64]Status{}
	var id int64
	var status Status
	_, err = pgx.ForEachRow(rows, []any{&id, &status}, func() error {
		got[id] = status
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("orders %v, want %v", got, want)
	}
}

func TestAFailedTransactionIsReportedAndLeftBehind(t *testing.T) {
	db := newDB(t)
	s := &Service{DB: db}
	steps(t, s, 3)

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if c, err := s.Step(canceled); err == nil {
		t.Fatalf("change %+v, want an error", c)
	}
	steps(t, s, 9)
}

// The compose file mounts our copy.
func TestTheOutboxTableIsTheLibrarys(t *testing.T) {
	if !strings.HasSuffix(Schema, outbox.Schema) {
		t.Errorf("schema.sql does not end with outbox.Schema:\n%s", outbox.Schema)
	}
}
