// Package storage is for those who write a store for package idempotency, and
// for those who look into one: what a store is asked, what it answers, and the
// state machine of a key. Package storetest holds a store to it.
//
// Those who only handle messages need nothing of it.
package storage
