package storage

import "context"

type leaseKey struct{}

// ContextWithLease returns a context for which LeaseFrom returns the lease. A
// Runner gives such a context to the handler.
func ContextWithLease(ctx context.Context, lease Lease) context.Context {
	return context.WithValue(ctx, leaseKey{}, lease)
}

// LeaseFrom returns the lease under which the handler with this context runs;
// none where it runs unclaimed (FailOpen).
func LeaseFrom(ctx context.Context) (Lease, bool) {
	lease, ok := ctx.Value(leaseKey{}).(Lease)
	return lease, ok
}
