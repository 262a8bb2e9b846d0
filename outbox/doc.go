// Package outbox is for the service writing events: it adds them to the
// transaction changing the business tables, so both are committed or neither
// is. The connector, cdc-outbox, does the rest.
//
// With pgx:
//
//	ids, err := outbox.Write(ctx, tx, outbox.Event{
//		AggregateType: "order",       // the topic: outbox.event.order
//		AggregateID:   "42",          // the record's key
//		Type:          "OrderPlaced", // its header eventType
//		Payload:       order,         // its value, as JSON
//	})
//
// With database/sql it is [WriteSQL]. Where the connector runs in message mode,
// [Emit] and [EmitSQL] write no row but a message in the WAL. All take any
// number of events and write them with a single statement, or a few for very
// many. All four use the table outbox with Debezium's column names, or the
// message prefix outbox; a [Writer] is for all else: another table, other
// columns, payloads other than JSON, headers from the context.
//
// [Wait] and [WaitSQL] return when all events committed before are in Kafka, for
// tests, deploys and migrations.
//
// [Schema] and [PartitionedSchema] create the table; "cdc-outbox setup" does too.
//
// Invariants:
//
//  1. No statement reaches the database unless all events of a call are valid;
//     an [InvalidError] lists everything that is wrong with them.
//  2. Events are written in the order given, and the connector publishes those
//     of a key in this order.
//  3. Only an open transaction is taken, by type: a pool or a connection does not
//     compile. The package begins, commits and rolls back nothing.
//  4. An event's id is known to the caller, and no other is ever made for it.
//  5. The package depends on the standard library and github.com/google/uuid
//     only. pgx and database/sql drivers fit by their methods.
//
// An error from the database leaves the transaction failed, as any failed
// statement does: roll it back. The error wraps the driver's, with the remedy
// where known.
//
// Non-goals: transactions, retries, creating topics, reading the outbox.
package outbox
