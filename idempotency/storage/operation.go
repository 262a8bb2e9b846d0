package storage

// Operation names a method of Store that a Processor calls, as metrics show it.
type Operation string

// The operations.
const (
	OpClaim    Operation = "claim"
	OpExtend   Operation = "extend"
	OpComplete Operation = "complete"
	OpFail     Operation = "fail"
)
