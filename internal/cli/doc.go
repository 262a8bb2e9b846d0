// Package cli has the parts that the command lines of the connector and of its
// demo share: signals, the message of the error that ends the program, the version.
//
// Non-goals: verbs, flags; each program has its own.
package cli
