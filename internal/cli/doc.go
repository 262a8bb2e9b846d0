// Package cli has the parts the command lines of the connector and of the demo
// share: signals, the message of the error ending the program, the version.
//
// Non-goals: verbs, flags; each program has its own.
package cli
