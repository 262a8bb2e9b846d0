package main

import "runtime/debug"

// abortOnPanic makes a panic of any goroutine end the process by SIGABRT. Go's
// own way is exit code 2, which would tell supervisors that the configuration
// is wrong and a restart does not help. The first process of a container cannot
// abort, and still ends with 2.
func abortOnPanic() { debug.SetTraceback("crash") }
