// Package cli is the skeleton of our command lines: verbs and flags, help,
// usage errors, exit codes, the version, signals, the message of the error
// ending the program.
//
// Invariants:
//
//  1. The exit code is that of the error's failure.Class, and 0 without an error.
//  2. Each error is reported once, by the program's own report.
//  3. A usage error repeats no word possibly holding a password.
//
// Non-goals: the verbs themselves, configuration files, logs.
package cli
