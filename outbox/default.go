package outbox

import (
	"context"

	"github.com/google/uuid"
)

// standard is the Writer of the package's functions.
var standard = newWriter(Options{}.withDefaults())

// Write inserts the events into the table outbox, in a transaction of pgx, and
// returns their ids: Writer.Write with the default Options.
func Write[R any](ctx context.Context, tx PGXTx[R], events ...Event) ([]uuid.UUID, error) {
	return standard.Write(ctx, PGX(tx), events...)
}

// WriteSQL is Write for a transaction of database/sql.
func WriteSQL(ctx context.Context, tx SQLTx, events ...Event) ([]uuid.UUID, error) {
	return standard.Write(ctx, SQL(tx), events...)
}

// Emit writes the events as messages with the prefix outbox, in a transaction
// of pgx, and returns their ids: Writer.Emit with the default Options.
func Emit[R any](ctx context.Context, tx PGXTx[R], events ...Event) ([]uuid.UUID, error) {
	return standard.Emit(ctx, PGX(tx), events...)
}

// EmitSQL is Emit for a transaction of database/sql.
func EmitSQL(ctx context.Context, tx SQLTx, events ...Event) ([]uuid.UUID, error) {
	return standard.Emit(ctx, SQL(tx), events...)
}
