package admin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// creationPatience bounds the creation of the temporary slot, which waits for
// the running transactions.
const creationPatience = 3 * time.Second

// streams starts a stream from a slot bound to its connection: a pooler may take
// a replication connection, create a slot, and never answer the start.
func (d *doctor) streams(ctx context.Context) {
	const name = "postgresql.stream"
	switch {
	case d.server.InRecovery || d.server.WALLevel != "logical":
		d.skip(name, "the server makes no slot for a trial")
		return
	case d.server.UsedSlots >= d.server.MaxSlots || d.server.UsedSenders >= d.server.MaxSenders:
		d.skip(name, "no slot or WAL sender is free for a trial")
		return
	}
	repl, err := d.replication(ctx)
	if err != nil {
		d.skip(name, "no replication connection")
		return
	}
	slot, pid := temporarySlot(d.cfg.Source.Slot, "check"), int32(repl.PID())
	at, err := d.trialSlot(ctx, repl, slot)
	if errors.Is(err, context.DeadlineExceeded) {
		d.skip(name, fmt.Sprintf("a slot for a trial waits for open transactions, and was given up after %s", creationPatience))
		return
	}
	if err != nil {
		d.fail(name, err)
		return
	}
	stream, err := d.stream(ctx, repl, slot, at, 0)
	if err != nil {
		_ = catalog.Terminate(ctx, d.conn, pid) // a pooler may keep the connection, and so the slot
		d.fail(name, catalog.Unanswered(err))
		return
	}
	catalog.Close(stream)
	d.ok(name, "a stream starts, from a temporary slot")
}

// temporarySlot names a slot a verb makes for itself. Slots are the whole
// server's, and processes in containers have the same id.
func temporarySlot(beside, verb string) string {
	return fmt.Sprintf("%.40s_%s_%08x", beside, verb, rand.Uint32())
}

// trialSlot creates a temporary slot. The server would not notice for long that
// the creation was given up: trialSlot cancels the statement.
func (d *doctor) trialSlot(ctx context.Context, repl *pgconn.PgConn, slot string) (at pg.LSN, err error) {
	limited, cancel := context.WithTimeout(ctx, creationPatience)
	defer cancel()
	at, _, err = catalog.CreateSlot(limited, repl, slot, d.server.Version, catalog.SlotOptions{Temporary: true})
	if err == nil {
		return at, nil
	}
	if limited.Err() != nil {
		err = errors.Join(limited.Err(), err)
		_ = catalog.Cancel(ctx, d.conn, int32(repl.PID())) // perhaps over by now
	}
	catalog.Close(repl)
	return 0, err
}
