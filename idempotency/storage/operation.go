package storage

// Operation names a Processor's call of Store or Transactor, for metrics.
type Operation string

// The operations.
const (
	OpReserve  Operation = "reserve"
	OpClaim    Operation = "claim"
	OpExtend   Operation = "extend"
	OpComplete Operation = "complete"
	OpFail     Operation = "fail"
)
