package pgtest

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/container"
	"github.com/cdc-outbox/cdc-outbox/internal/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pgserver"
	"github.com/cdc-outbox/cdc-outbox/internal/testserver"
)

// Pair is a primary, and a standby that copies its logical slots. In containers they
// have a network of their own.
type Pair struct{ Primary, Standby *Server }

// StartPair starts both. All that the primary writes reaches the standby, and
// slots with failover send nothing that it does not have yet
// (synchronized_standby_slots). The test is skipped before PostgreSQL 17.
func StartPair(t testing.TB) *Pair {
	t.Helper()
	network := startNetwork(t)
	primary := Start(t, in(network, "primary"))
	var copies bool
	if primary.ask(t, "SELECT current_setting('server_version_num')::int >= 170000", &copies); !copies {
		t.Skip("servers before 17 do not copy slots to standbys")
	}
	standby := Start(t, in(network, "standby"),
		Setting("primary_conninfo", primary.conninfo(t)),
		Setting("primary_slot_name", "standby"),
		Setting("hot_standby_feedback", "on"),
		Setting("sync_replication_slots", "on"))

	primary.Exec(t, "SELECT pg_create_physical_replication_slot('standby')")
	standby.Stop(t, Fast)
	primary.Stop(t, Fast)
	standby.Become(t, primary.Files(t))
	standby.StandBy(t)
	primary.Resume(t)
	standby.Resume(t)
	primary.Exec(t, "ALTER SYSTEM SET synchronized_standby_slots = 'standby'", "SELECT pg_reload_conf()") // the copy has it not
	return &Pair{Primary: primary, Standby: standby}
}

// FailOver has the primary crash, promotes the standby, and has that go on at the
// primary's address.
func (p *Pair) FailOver(t testing.TB) {
	t.Helper()
	p.Primary.Stop(t, Immediate)
	p.Standby.Exec(t, "SELECT pg_promote()")
	p.Standby.Stop(t, Fast)
	p.Primary.Become(t, p.Standby.Files(t))
	p.Primary.Resume(t)
}

// conninfo is how another server connects to this one.
func (s *Server) conninfo(t testing.TB) string {
	t.Helper()
	user := must.Get(url.Parse(s.URL("postgres")))(t).User
	password, _ := user.Password()
	host, port := s.server.Peer()
	return fmt.Sprintf("host=%s port=%s user=%s password=%s dbname=postgres", host, port, user.Username(), password)
}

// startNetwork starts a network that ends with the test, or returns nil where servers
// are local.
func startNetwork(t testing.TB) *container.Network {
	t.Helper()
	if !must.Get(container.Chosen(pgserver.BinEnv))(t) {
		return nil
	}
	return testserver.Start(t, "a network of containers", nil, container.NewNetwork)
}

// in has the server in the network, if there is one, under the name.
func in(network *container.Network, name string) Option {
	return func(o *options) { o.network, o.name = network, name }
}
