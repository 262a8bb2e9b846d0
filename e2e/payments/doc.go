// Package payments tests a whole flow between three services, which must be
// exactly once in effect, while the processes carrying it are killed:
//
//	payments ─▶ orders ─▶ PostgreSQL: order PAID, event in the outbox
//	                          │ cdc-outbox
//	                          ▼
//	                      Kafka ─▶ shipping ─▶ PostgreSQL: one shipment per order
//
// While customers pay, the order service, the connector, the shipping service
// and Redis (which keeps nothing on disk) are killed with kill -9 in turn and
// started again. Every message is delivered three times. At the end each order
// must be PAID once, announced once and shipped once; the table of shipments
// has no constraint that would hide a second.
//
// With Redis, DynamoDB or memory a process can die between the commit and the
// completion in the store, and Redis can forget. The message is then handled
// again, and the guard in the database recognises it. With PostgreSQL there is
// no such moment, and shipping needs no guard.
package payments
