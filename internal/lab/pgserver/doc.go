// Package pgserver runs a throwaway PostgreSQL server from installed binaries,
// for the demo and for tests.
//
// Invariants:
//
//  1. A server lives in a separate directory, listens on the loopback address
//     and on a Unix socket in that directory, and asks for a random password:
//     nothing on the machine is shared with it.
//  2. It never runs as root (PostgreSQL refuses that): started by root, it
//     runs as the user postgres or, where there is none, nobody.
//  3. It does not outlive the process that started it. Close removes
//     everything; on Linux the kernel stops the server when the process is
//     killed, and the next Start removes the directory left behind.
//
// Non-goals: keeping data, anything but the local machine, Windows.
package pgserver
