//go:build !race

package memory_test

const steps = 1_000_000
