package catalog

import "testing"

func TestIsLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:5432":                   true,
		"127.1.2.3:5432":                   true,
		"[::1]:5432":                       true,
		"10.0.0.1:5432":                    false,
		"[2001:db8::1]:5432":               false,
		"/var/run/postgresql/.s.PGSQL.543": false,
		"@":                                false,
		"":                                 false,
	} {
		if got := isLoopback(address); got != want {
			t.Errorf("%q: %t", address, got)
		}
	}
}
