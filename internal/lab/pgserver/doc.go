// Package pgserver runs a throwaway PostgreSQL server from installed binaries,
// for the demo and for tests.
//
// Invariants:
//
//  1. A server lives in a separate directory, listens on the loopback address
//     and on a Unix socket in that directory, and asks for a random password:
//     servers share nothing with the rest of the machine.
//  2. No server runs as root (PostgreSQL refuses): started by root, a server
//     runs as the user postgres or, where there is none, nobody.
//  3. No server outlives the process of Start. Close removes everything; on
//     Linux the kernel stops the server when the process is killed, and the
//     next Start removes the directory left behind.
//
// Non-goals: keeping data, anything but the local machine, Windows.
package pgserver
