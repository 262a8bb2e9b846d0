//go:build race

package memory_test

// steps is what the race detector leaves time for; it has nothing to find where
// calls are made in turn.
const steps = 50_000
