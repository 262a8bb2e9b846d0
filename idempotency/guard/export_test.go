package guard

// What a guard says of itself, and of the database.
var (
	ErrUnusable   = errUnusable
	ErrSuppressed = errSuppressed
)
