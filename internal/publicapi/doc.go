// Package publicapi holds the test that finds exported symbols of the libraries,
// outbox and idempotency, which no example and no test uses from outside their
// packages. A symbol that nobody uses there is either not shown to its users or
// not needed.
package publicapi
