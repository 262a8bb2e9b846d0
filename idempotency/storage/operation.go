package storage

// Operation names a method of Store, or of Transactor, that a Processor calls, as
// metrics show it.
type Operation string

// The operations.
const (
	OpReserve  Operation = "reserve"
	OpClaim    Operation = "claim"
	OpExtend   Operation = "extend"
	OpComplete Operation = "complete"
	OpFail     Operation = "fail"
)
