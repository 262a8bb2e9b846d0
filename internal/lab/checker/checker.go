// Package checker decides whether a connector lost, altered, reordered or
// doubled anything, from the writers' deeds and the topics' content.
//
// Writers note every transaction in a Ledger, with the events to publish and the
// outcome of the commit; a Reader reads the topics; a Watcher looks at the slot
// and at the topics' ends all the while. Verify compares the three. It is pure:
// no clock, no network, no goroutine.
//
// Assertions:
//
//  1. Committed ⊆ delivered ⊆ committed ∪ unknown. A transaction with a commit
//     of unknown outcome arrives in whole or not at all.
//  2. Each record is the event, byte by byte: topic, key, value, headers.
//  3. After de-duplication by id, the records of a key are in a single
//     partition in the order of (cdc-lsn, cdc-seq), the order of the commits as
//     far as known to the writers, and within a transaction the order of the
//     inserts. Records without positions are in the two latter orders.
//  4. A repetition of a record has the same position.
//  5. At no instant was the slot's confirmed position beyond the commit of an
//     event not in its topic yet.
//
// Repetitions are counted, not condemned: only the caller knows of causes.
//
// Non-goals: the record for a row (package transform has vectors for that),
// several databases in a history.
package checker

import (
	"errors"
	"fmt"
)

// History is the evidence for Verify.
type History struct {
	Transactions []Transaction
	// Records are in the order of reading, within a partition the order of their
	// offsets.
	Records []Record
	Samples []Sample // in the order of taking
	// NoPositions: records have no position, and must not.
	NoPositions bool
}

// Kind names the rule broken by a Problem.
type Kind string

// The kinds of Problem.
const (
	Lost      Kind = "lost"      // committed, and in no topic
	Torn      Kind = "torn"      // a part of a transaction arrived
	Ghost     Kind = "ghost"     // arrived without having been committed
	Altered   Kind = "altered"   // key, value or headers are not the event's
	Misrouted Kind = "misrouted" // in another topic, or in two partitions
	Misplaced Kind = "misplaced" // the position contradicts another record's
	Reordered Kind = "reordered" // delivered or positioned after a later event
	Premature Kind = "premature" // confirmed before the record was in the topic
)

// Problem is a breach of a rule.
type Problem struct {
	Kind Kind
	Text string
}

// Report is the result of Verify.
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
