package postgres

// DB is what a store needs.
type DB = database

// What becomes of a handler that mistreats its transaction.
var (
	ErrNoTransaction = errNoTransaction
	ErrTxControl     = errTxControl
	ErrTxEnded       = errTxEnded
	ErrTxFailed      = errTxFailed
)
