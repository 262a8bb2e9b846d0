// Package broker is the room for Kafka, as catalog is for PostgreSQL: it makes every client
// of the connector's, and tells whether a client can still write.
//
// Non-goals: the options of a client (sink), records and transactions (sink), the
// checkpoint's topic (checkpoint/store).
package broker
