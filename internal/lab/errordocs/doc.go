// Package errordocs holds the test that produces docs/errors.md: it gives the
// real program one bad input after the other, on a real PostgreSQL and an
// in-process Kafka, and writes down what a user sees. Where versions of PostgreSQL
// differ, the page has what each says. After changing a message: make errors.
package errordocs
