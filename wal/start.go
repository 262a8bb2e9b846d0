package wal

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/sqltext"
)

// startCommand is START_REPLICATION for pgoutput's protocol version 1
// (PostgreSQL documentation, "Streaming Replication Protocol").
func startCommand(o Options) string {
	publication := sqltext.Literal(pgx.Identifier{o.Publication}.Sanitize())
	cmd := fmt.Sprintf("START_REPLICATION SLOT %s LOGICAL %s (proto_version '1', publication_names %s",
		pgx.Identifier{o.Slot}.Sanitize(), o.Start, publication)
	if o.Messages {
		cmd += ", messages 'true'"
	}
	return cmd + ")"
}
