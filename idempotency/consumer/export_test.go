package consumer

import "time"

// Why a handler was cut off.
var (
	ErrRevoked       = errRevoked
	ErrPartitionLost = errPartitionLost
	ErrStopping      = errStopping
	ErrScopeTaken    = errScopeTaken
)

// DeadLetterTopicWithin is DeadLetterTopic with a timeout.
var DeadLetterTopicWithin = deadLetterTopic

// ScopeID is that of the message by which a group makes its scope known.
const ScopeID = scopeID

// SetScopeInterval sets the time between two looks at the scope.
func SetScopeInterval(c *Config, d time.Duration) { c.scopeInterval = d }
