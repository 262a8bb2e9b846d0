package idempotency

// The meaning of a handler's error.
var (
	IsTerminal    = isTerminal
	IsNotItsFault = isTransient
)
