package broker

import "context"

// SetLookup replaces the resolver until restore is called.
func SetLookup(f func(context.Context, string) ([]string, error)) (restore func()) {
	former := lookup
	lookup = f
	return func() { lookup = former }
}
