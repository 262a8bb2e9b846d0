package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/container"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgserver"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// Pair is a primary and a standby. In containers they share a separate network.
type Pair struct {
	Primary, Standby *Server

	network *container.Network
}

// StartPair starts both, of PostgreSQL 17 or later, with a standby copying the logical
// slots, and returns once the standby reads the primary's log. All of the log reaches the
// standby, and slots with failover send nothing still missing there
// (synchronized_standby_slots).
func StartPair(t testing.TB) *Pair {
	t.Helper()
	p := startPair(t, Since(t, 17))
	p.Standby.follow(t, p.Primary)
	p.Primary.follow(t, p.Standby) // once a standby
	p.Primary.await(t)
	p.streams(t)
	return p
}

// StartReplica starts both, of any version, without copies of slots. The standby's name
// for synchronous_standby_names is walreceiver.
func StartReplica(t testing.TB) *Pair {
	t.Helper()
	p := startPair(t)
	p.Standby.receive(t, p.Primary)
	p.Standby.Exec(t, "SELECT pg_reload_conf()")
	p.streams(t)
	return p
}

// streams returns once the standby reads the primary's log.
func (p *Pair) streams(t testing.TB) {
	t.Helper()
	connected(t, p.Primary.URL("postgres"), func(_ context.Context, conn *pgx.Conn) error {
		Await(t, conn, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming')")
		return nil
	})
}

func startPair(t testing.TB, opts ...Option) *Pair {
	t.Helper()
	network := startNetwork(t)
	p := &Pair{
		network: network,
		Primary: Start(t, append(opts, in(network, "primary"))...),
		Standby: Start(t, append(opts, in(network, "standby"))...),
	}

	p.Primary.Exec(t, "SELECT pg_create_physical_replication_slot('standby')")
	p.Standby.Stop(t, Fast)
	p.Primary.Stop(t, Fast)
	p.Standby.Become(t, p.Primary.Files(t))
	p.Standby.StandBy(t)
	p.Primary.Resume(t)
	p.Standby.Resume(t)
	return p
}

// Below starts a standby of the standby, with the slot "below" there.
func (p *Pair) Below(t testing.TB) *Server {
	t.Helper()
	below := Start(t, Since(t, 17), in(p.network, "below"))
	p.Standby.Exec(t, "SELECT pg_create_physical_replication_slot('below')")
	p.Standby.Stop(t, Fast)
	below.Stop(t, Fast)
	below.Become(t, p.Standby.Files(t))
	below.StandBy(t)
	p.Standby.Resume(t)
	below.Resume(t)
	below.follow(t, p.Standby)
	below.Exec(t, "ALTER SYSTEM SET primary_slot_name = 'below'", "SELECT pg_reload_conf()")
	connected(t, p.Standby.URL("postgres"), func(_ context.Context, conn *pgx.Conn) error {
		Await(t, conn, "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = 'below' AND active)")
		return nil
	})
	return below
}

// receive has a standby read the log of another server, after the next reload.
func (s *Server) receive(t testing.TB, other *Server) {
	t.Helper()
	s.Exec(t, "ALTER SYSTEM SET primary_conninfo = '"+other.conninfo(t)+"'",
		"ALTER SYSTEM SET primary_slot_name = 'standby'",
		"ALTER SYSTEM SET hot_standby_feedback = on")
}

// follow has a standby read the log and copy the slots of another server.
func (s *Server) follow(t testing.TB, other *Server) {
	t.Helper()
	s.receive(t, other)
	s.Exec(t, "ALTER SYSTEM SET sync_replication_slots = on", "SELECT pg_reload_conf()")
}

// await has a primary send nothing of a slot the standby does not have.
func (s *Server) await(t testing.TB) {
	t.Helper()
	s.Exec(t, "ALTER SYSTEM SET synchronized_standby_slots = 'standby'", "SELECT pg_reload_conf()")
}

// FailOver has the primary crash, and the promoted standby go on at the primary's
// address.
func (p *Pair) FailOver(t testing.TB) {
	t.Helper()
	p.Primary.Stop(t, Immediate)
	p.Standby.Exec(t, "SELECT pg_promote()")
	p.Standby.Stop(t, Fast)
	p.Primary.Become(t, p.Standby.Files(t))
	p.Primary.Resume(t)
}

// SwitchOver has primary and standby change their parts, each at its own address. The
// former primary keeps its slots.
func (p *Pair) SwitchOver(t testing.TB) {
	t.Helper()
	p.Primary.Stop(t, Fast)
	p.Primary.StandBy(t)
	p.Primary, p.Standby = p.Standby, p.Primary
	p.Primary.Exec(t, "SELECT pg_promote()",
		"SELECT pg_create_physical_replication_slot('standby') WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = 'standby')")
	p.Primary.await(t)
	p.Standby.Resume(t)
}

// conninfo is another server's way to this server.
func (s *Server) conninfo(t testing.TB) string {
	t.Helper()
	user := must.Get(url.Parse(s.URL("postgres")))(t).User
	password, _ := user.Password()
	host, port := s.server.Peer()
	return fmt.Sprintf("host=%s port=%s user=%s password=%s dbname=postgres", host, port, user.Username(), password)
}

// startNetwork starts a network ending with the test, or returns nil where
// servers are local.
func startNetwork(t testing.TB) *container.Network {
	t.Helper()
	if !must.Get(container.Chosen(pgserver.BinEnv))(t) {
		return nil
	}
	return testserver.Start(t, "a network of containers", nil, container.NewNetwork)
}

// in has the server in the network, if any, under the name.
func in(network *container.Network, name string) Option {
	return func(o *options) { o.network, o.name = network, name }
}
