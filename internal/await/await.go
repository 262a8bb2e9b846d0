// Package await ends a wait for a call that does not look at its context all the
// time. franz-go's client does not while it connects: a broker that takes the
// connection and says nothing keeps it at that for ten seconds.
package await

import "context"

// Answer calls ask in a goroutine and returns its answer, or the cause of ctx's
// end without it. ask then goes on by itself: there must be something that ends
// it, such as its client's Close.
func Answer[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		value, err := ask()
		answered <- answer{value, err}
	}()
	select {
	case a := <-answered:
		return a.value, a.err
	case <-ctx.Done():
		var nothing T
		return nothing, context.Cause(ctx)
	}
}
