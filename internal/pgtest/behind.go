package pgtest

import (
	"net/url"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/proxy"
)

// Behind puts a proxy before the server of a database. It returns both the proxy
// and the URL of the database behind it.
func Behind(t testing.TB, database string) (p *proxy.Proxy, behind string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	if p, err = proxy.Listen("127.0.0.1:0", u.Host); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	u.Host = p.Addr()
	return p, u.String()
}
