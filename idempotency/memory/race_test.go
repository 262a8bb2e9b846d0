//go:build race

package memory_test

// steps are as many as the slow race detector allows; calls in turn have no races
// anyway.
const steps = 50_000
