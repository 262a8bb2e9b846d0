// Package orders is a small order service publishing through an outbox table.
// The demo and examples/orders both run it.
//
// Invariants:
//
//  1. Every transaction writes a business row and an outbox row, or, when
//     rolled back, neither.
//  2. The events of an order carry its id as their key and are committed in
//     sequence: OrderPlaced, OrderPaid, OrderShipped.
//
// Non-goals: load generation, random histories (the tests of the connector
// have their own writers), real bookkeeping.
package orders

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// Schema is the SQL creating missing tables; the outbox table is that of
// outbox.Schema.
//
//go:embed schema.sql
var Schema string

// DB is where the service writes: a *pgx.Conn or a *pgxpool.Pool.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// maxOpen is how many orders are under way at a time, so the events of several
// orders interleave.
const maxOpen = 3

// errRollback ends a transaction to be rolled back on purpose.
var errRollback = errors.New("rolled back on purpose")

// Service places orders and moves them on. Service is not safe for concurrent
// use; several services may share a database.
type Service struct {
	// DB is required; the search path must lead to the tables of Schema.
	DB DB
	// RollbackEvery makes every n-th transaction write the rows and then roll
	// back. The default, 0, rolls nothing back.
	RollbackEvery int

	transactions int     // begun so far
	open         []Order // not shipped yet, the longest untouched first
}

// CreateTables creates the business and the outbox table where they are
// missing.
func CreateTables(ctx context.Context, db DB) error {
	if _, err := db.Exec(ctx, Schema); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	return nil
}

// Step runs the service's next transaction: a new order while few are open,
// else payment or shipment of the order longest waiting. After an error the
// transaction's outcome is unknown and the order is left alone.
func (s *Service) Step(ctx context.Context) (Change, error) {
	if len(s.open) < maxOpen {
		return s.Place(ctx)
	}
	o := s.open[0]
	s.open = s.open[1:]
	return s.advance(ctx, o)
}

// Place creates an order and its OrderPlaced event in a single transaction.
func (s *Service) Place(ctx context.Context) (Change, error) {
	n := s.transactions
	o := Order{
		Customer: customers[n%len(customers)],
		Item:     items[n%len(items)].name,
		Total:    items[n%len(items)].price,
		Status:   Placed,
	}
	c, err := s.commit(ctx, &o, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx,
			`INSERT INTO orders (customer, item, total, status) VALUES ($1, $2, $3, $4) RETURNING id`,
			o.Customer, o.Item, o.Total, o.Status).Scan(&o.ID)
	})
	if err != nil {
		return Change{}, fmt.Errorf("place order: %w", err)
	}
	if !c.RolledBack {
		s.open = append(s.open, o)
	}
	return c, nil
}

// advance moves an order to the next status, with the event saying so.
func (s *Service) advance(ctx context.Context, before Order) (Change, error) {
	o := before
	o.Status = before.Status.next()
	c, err := s.commit(ctx, &o, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE orders SET status = $1 WHERE id = $2`, o.Status, o.ID)
		return err
	})
	switch {
	case err != nil:
		return Change{}, fmt.Errorf("advance order %d to %s: %w", o.ID, o.Status, err)
	case c.RolledBack:
		s.open = append(s.open, before)
	case o.Status != Shipped:
		s.open = append(s.open, o)
	}
	return c, nil
}

// commit is the outbox pattern itself: the business row and its event become
// visible together or not at all. In its turn, commit rolls back.
func (s *Service) commit(ctx context.Context, o *Order, write func(pgx.Tx) error) (Change, error) {
	s.transactions++
	rollback := s.RollbackEvery > 0 && s.transactions%s.RollbackEvery == 0

	var eventID string
	err := pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		if err := write(tx); err != nil {
			return fmt.Errorf("write order: %w", err)
		}
		ids, err := outbox.Write(ctx, tx, outbox.Event{
			AggregateType: AggregateType, AggregateID: strconv.FormatInt(o.ID, 10), Type: o.Status.eventType(), Payload: o,
		})
		if err != nil {
			return err
		}
		eventID = ids[0].String()
		if rollback {
			return errRollback
		}
		return nil
	})
	if err != nil && !errors.Is(err, errRollback) {
		return Change{}, err
	}
	return Change{Order: *o, EventID: eventID, EventType: o.Status.eventType(), RolledBack: rollback}, nil
}
