package postgres

// ErrNoTransaction: Tx was called outside of a handler.
var ErrNoTransaction = errNoTransaction
