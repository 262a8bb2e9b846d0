// Package unwatched reads and writes sockets, and waits for times, in system
// calls Go's runtime does not watch.
//
// The runtime cannot know which calls block a thread. So a call made while its
// watcher (sysmon) sleeps wakes it, and for as long as anything runs it looks
// every 20 µs. A process that wakes some hundred times a second pays more for
// the watch than for the work. A call that cannot wait needs no watch.
//
// Invariants:
//
//  1. No call here waits, but for Nap: each is made with MSG_DONTWAIT, or takes
//     no time. Long waits belong in the runtime's poller.
//  2. No call here is long: the thread cannot be used for anything else, and
//     the garbage collector waits for it. A large write is made as package net
//     does. A Nap is longer, so it is the only, and ends when a collection
//     begins.
//
// Non-goals: systems other than Linux, where package net is used as is.
package unwatched
