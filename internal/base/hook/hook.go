// Package hook lets tests change what no user of the libraries may: the tests
// with servers are in another module than the libraries.
package hook

import (
	"context"
	"time"
)

type interval struct{}

// WithInterval returns a context in which d stands for what is an interval or a
// limit of many seconds otherwise.
func WithInterval(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, interval{}, d)
}

// Interval returns the context's, or usual.
func Interval(ctx context.Context, usual time.Duration) time.Duration {
	if d, ok := ctx.Value(interval{}).(time.Duration); ok {
		return d
	}
	return usual
}

// Of a *dynamodb.Store; that package sets them when the program starts.
var (
	// DynamoDBExact makes it take the server's Date, and the local clock's speed,
	// for exact: a test can make them so.
	DynamoDBExact func(store any)
	// DynamoDBUnknown returns how much is not known of the server's clock; false
	// before the first answer.
	DynamoDBUnknown func(store any) (time.Duration, bool)
)

// RedisYield replaces what a *redis.Store does to let others join a round trip;
// joined counts those who have joined one that has not begun. That package sets
// it at the start of the program. The store must not be in use.
var RedisYield func(store any, yield func(joined func() int))
