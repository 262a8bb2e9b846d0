package redis

// ErrTooFewReplicas means that too few replicas have a write.
var ErrTooFewReplicas = errTooFewReplicas

// WatchEvictions is Maintain with an interval.
var WatchEvictions = (*Store).watchEvictions
