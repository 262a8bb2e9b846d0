// Package must ends a test where something fails that it is not about.
package must

import "testing"

// Get returns the value of a call, or ends the test with the call's error:
// v := must.Get(call())(t).
func Get[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Do(t, err)
		return v
	}
}

// Do ends the test if there is an error.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
