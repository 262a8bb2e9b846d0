// Package storetest holds every storage.Store to its contract. It is for the
// tests of a store.
//
// Run goes through the contract line by line. Histories lets clients that
// crash, wake up late, repeat calls and forge leases loose on a store, and
// compares each answer with an oracle: a second, deliberately simple
// implementation of the contract sharing no code with package idempotency.
//
// What the oracle rejects:
//
//  1. two claims with one fence, or a fence that is not above all earlier ones
//     of the key;
//  2. a claim granted while another's lease must still be live, or refused
//     after the lease must be over;
//  3. a completed key claimed within the retention, or its result altered;
//  4. a key settled by anybody but the holder of its last claim;
//  5. attempts counted otherwise than one per granted claim;
//  6. a key that cannot be completed in the end.
//
// A store with a fake clock is judged exactly. Of any other only the moments
// before and after a call are known; the oracle then looks for an order of the
// concurrent calls, and a moment within each, that explains the answers, and
// complains if there is none.
//
// Non-goals: what a store does when the server loses data; speed.
package storetest
