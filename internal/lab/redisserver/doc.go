// Package redisserver finds, gets and runs Redis servers (or Valkey's, which
// speak the same) for tests, examples and measurements.
//
// Invariants:
//
//  1. A server listens on the loopback address and on a Unix socket, and keeps
//     both over Stop and Resume.
//  2. It does not outlive us.
//  3. Getting the program starts no service and installs nothing: packages are
//     unpacked into the user's cache.
//
// Non-goals: production, access control, Windows.
package redisserver
