// Package storetest holds every storage.Store to the contract, in the tests of the
// store.
//
// Run goes through the contract line by line. Histories lets clients that
// crash, wake up late, repeat calls and forge leases loose on a store, and
// compares each answer with an oracle: a second, deliberately simple
// implementation of the contract sharing no code with package idempotency.
//
// The oracle rejects:
//
//  1. two claims with the same fence, or a fence not above all earlier fences of
//     the key;
//  2. a claim granted while another's lease must still be live, or refused
//     after the lease must be over;
//  3. a completed key claimed within the retention, or with an altered result;
//  4. a key settled by anybody but the holder of its last claim;
//  5. attempts other than the number of granted claims;
//  6. a key impossible to complete in the end.
//
// A store with a fake clock is judged exactly. Of other stores only the
// moments before and after a call are known. The oracle then looks for an order
// of the concurrent calls, and a moment within each, to explain the answers, and
// complains without any.
//
// Non-goals: stores after a server's loss of data; speed.
package storetest
