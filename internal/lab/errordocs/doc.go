// Package errordocs holds the test that produces docs/errors.md: it gives the
// real program one bad input after the other, on a real PostgreSQL and an
// in-process Kafka, and compares what a user sees with testdata/answers.md. Where
// versions of PostgreSQL differ, that file has what each says. The page is made of it,
// and briefer. After changing a message: make errors.
package errordocs
