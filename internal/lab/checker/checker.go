// Package checker decides whether a connector lost, altered, reordered or
// doubled anything, from what the writers did and what the topics hold.
//
// Writers note every transaction in a Ledger, with the events it must publish
// and how the commit ended; a Reader reads the topics; a Watcher looks at the
// slot and at the topics' ends all the while. Verify compares the three. It is
// pure: no clock, no network, no goroutine.
//
// Assertions:
//
//  1. Committed ⊆ delivered ⊆ committed ∪ unknown, where a transaction whose
//     commit has an unknown outcome arrives in whole or not at all.
//  2. Each record is the event, byte by byte: topic, key, value, headers.
//  3. After de-duplication by id, the records of a key are in a single
//     partition in the order of (cdc-lsn, cdc-seq), the order of the commits as
//     far as the writers know it, and within a transaction the order of the
//     inserts. Where records have no positions, they are in the two latter
//     orders.
//  4. A repetition of a record has the position the record had.
//  5. At no instant was the slot's confirmed position beyond the commit of an
//     event not in its topic yet.
//
// Repetitions are counted, not condemned: only the caller knows whether it gave
// cause for any.
//
// Non-goals: what the connector should make of a row (package transform has
// vectors for that), several databases in one history.
package checker

import (
	"errors"
	"fmt"
)

// History is what Verify judges.
type History struct {
	Transactions []Transaction
	// Records are in the order in which they were read, which within a
	// partition is that of their offsets.
	Records []Record
	Samples []Sample // in the order in which they were taken
	// NoPositions: records have no position, and must not.
	NoPositions bool
}

// Kind says what rule of the package a Problem breaks.
type Kind string

// The kinds of Problem.
const (
	Lost      Kind = "lost"      // committed, and in no topic
	Torn      Kind = "torn"      // a part of a transaction arrived
	Ghost     Kind = "ghost"     // arrived without having been committed
	Altered   Kind = "altered"   // key, value or headers are not the event's
	Misrouted Kind = "misrouted" // in another topic, or in two partitions
	Misplaced Kind = "misplaced" // the position contradicts another record's
	Reordered Kind = "reordered" // delivered or positioned after a later one
	Premature Kind = "premature" // confirmed before it was in the topic
)

// Problem is one thing that must not be.
type Problem struct {
	Kind Kind
	Text string
}

// Report is what Verify found.
type Report struct {
	Problems  []Problem
	Committed int // events of transactions known to be committed
	Unknown   int // events of transactions of unknown outcome
	Delivered int // distinct events in the topics
	Repeated  int // records beyond the first of their event
	Samples   int // looks at the slot

	noPositions bool
}

// String is a single line with the numbers.
func (r *Report) String() string {
	return fmt.Sprintf("%d committed, %d of unknown outcome, %d delivered, %d repeated, %d samples of the slot, %d problems",
		r.Committed, r.Unknown, r.Delivered, r.Repeated, r.Samples, len(r.Problems))
}

// shown is how many problems of a kind Err tells.
const shown = 5

// Err returns the problems as a single error, or nil where there are none.
func (r *Report) Err() error {
	count := map[Kind]int{}
	var errs []error
	for _, p := range r.Problems {
		if count[p.Kind]++; count[p.Kind] <= shown {
			errs = append(errs, fmt.Errorf("%s: %s", p.Kind, p.Text))
		}
	}
	for kind, n := range count {
		if n > shown {
			errs = append(errs, fmt.Errorf("%s: %d more", kind, n-shown))
		}
	}
	return errors.Join(errs...)
}

func (r *Report) problem(kind Kind, format string, args ...any) {
	r.Problems = append(r.Problems, Problem{kind, fmt.Sprintf(format, args...)})
}

// Verify judges a history. Events' ids must differ.
func Verify(h History) *Report {
	r := &Report{Samples: len(h.Samples), noPositions: h.NoPositions}
	expected := expect(r, h.Transactions)
	first := r.match(expected, h.Records)
	r.complete(h.Transactions, first)
	if !h.NoPositions {
		r.positions(h.Transactions, first)
		r.confirmed(first, h.Samples)
	}
	r.order(first, h.Transactions)
	return r
}
