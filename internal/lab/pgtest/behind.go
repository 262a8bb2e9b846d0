package pgtest

import (
	"net/url"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
)

// Behind puts a proxy before the server of a database. Behind returns both the
// proxy and the URL of the database behind it.
func Behind(t testing.TB, database string) (p *proxy.Proxy, behind string) {
	t.Helper()
	u := must.Get(url.Parse(database))(t)
	p = must.Get(proxy.Listen("127.0.0.1:0", u.Host))(t)
	t.Cleanup(func() { _ = p.Close() })
	u.Host = p.Addr()
	return p, u.String()
}
