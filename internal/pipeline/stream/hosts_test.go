package stream

import (
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

// Of several hosts, one refuses us for good, as a standby with another password.
// The other is restarted: that must not end the connector.
func TestOneOfSeveralHostsRefuses(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	d := newDatabase(t, server.NewDatabase(t))
	u := mustParse(t, d.url)
	u.Host = mustParse(t, pgtest.Shared(t).URL("postgres")).Host + "," + u.Host
	d.opts.URL = u.String()
	i := d.run().streams()
	d.publish(1, 1)
	server.Stop(t, pgtest.Fast)
	before := i.metrics.reconnected()
	eventually(t, "another attempt", func() bool { return i.metrics.reconnected() > before+1 })
	server.Resume(t)
	d.connect()
	d.publish(1, 1)
	d.finish(i)
}

// The server of the stream takes no more connections for a while, and another
// host of the URL never does, as a standby with hot_standby = off. That is no
// shutdown: the stream is left alone.
func TestAnotherHostThatTakesNoConnectionsIsNoShutdown(t *testing.T) {
	d := outbox(t)
	line, behind := pgtest.Behind(t, d.url)
	u := mustParse(t, behind)
	u.Host += "," + unavailable(t)
	u.RawQuery = "application_name=beside"
	d.opts.URL = u.String()
	i := d.run().streams()
	eventually(t, "a look at the slot", func() bool { return i.status().WALStatus != "" })
	line.Refuse(true)
	pgtest.Freeze(t, d.url, `datname = current_database() AND application_name = 'beside' AND backend_type = 'client backend'`)
	eventually(t, "a look in vain", func() bool {
		return i.logs.FilterMessage("cannot watch slot and publication beside the stream, will retry").Len() > 0 || i.metrics.reconnected() > 0
	})
	d.publish(1, 1)
	if n := i.metrics.reconnected(); n > 0 {
		t.Errorf("left the stream %d times", n)
	}
	d.finish(i)
}

// unavailable is the address of a server that takes no connections now.
func unavailable(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(func() { _ = listener.Close(); running.Wait() })
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			backend := pgproto3.NewBackend(conn, conn)
			if _, err := backend.ReceiveStartupMessage(); err == nil {
				backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P03", Message: "the database system is not accepting connections"})
				_ = backend.Flush()
			}
			_ = conn.Close()
		}
	})
	return listener.Addr().String()
}
