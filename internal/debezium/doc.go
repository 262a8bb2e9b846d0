// Package debezium reads the configuration of a Debezium connector for
// PostgreSQL with the outbox event router, and writes ours for the same records.
//
// Invariants:
//
//  1. Each option of the input has a verdict, unknown ones included. None is left
//     out silently.
//  2. No secret of the input is in a verdict or in the written configuration:
//     references take their place.
//  3. An option with another record as its effect, and without a counterpart, is
//     open: a person decides before the first start.
//
// Non-goals: I/O, the check of the result against servers, configurations of
// other connectors or without the router.
package debezium
