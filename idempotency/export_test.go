package idempotency

// What a handler's error says.
var (
	IsTerminal    = isTerminal
	IsNotItsFault = isNotItsFault
)
