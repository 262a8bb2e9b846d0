package stream

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// Failure mode 4: a fast shutdown waits for a walsender with a client that replies but
// cannot confirm, so the connector must leave.
func TestE2EFastShutdownIsNotHeldUpByAStalledSink(t *testing.T) {
	for _, stage := range []string{"streaming", "saving the first checkpoint of a session"} {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t)
			d := newDatabase(t, server.NewDatabase(t))
			i := d.run().streams()
			d.publish(1, 1)
			d.gate.hold()
			d.insert(3, 1)
			d.gate.waits(t)
			release := make(chan struct{})
			if stage != "streaming" {
				blockSaves(d.store, release)
				d.kill()
			}
			began := time.Now()
			server.Stop(t, pgtest.Fast) // fails if the server waits without end
			t.Logf("the server stopped within %v", time.Since(began).Round(time.Millisecond))
			close(release)
			server.Resume(t)
			d.connect()
			d.gate.open()
			d.publish(1, 1)
			d.finish(i)
		})
	}
}

// Failure modes 4 and 51: of a server with messages in another language than English.
func TestStopping(t *testing.T) {
	refused := fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	unavailable := catalog.Classify(&pgconn.PgError{Code: "57P03", Message: "das Datenbanksystem fährt herunter"})
	for _, tt := range []struct {
		name       string
		err        error
		terminated bool
		want       bool
	}{
		{"takes no connections", unavailable, false, true},
		{"refused", refused, false, false},
		{"refused after an administrator's command", refused, true, true},
		{"full, after an administrator's command", catalog.Classify(&pgconn.PgError{Code: "53300"}), true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := stopping(tt.err, tt.terminated); errors.Is(got, catalog.ErrShutdown) != tt.want || !errors.Is(got, tt.err) {
				t.Errorf("%v", got)
			}
		})
	}
}

// Of two hosts, the first refuses us for good, as a standby with another password. A
// restart of the other must not end the connector.
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

// The server of the stream takes no more connections for a while, and another host of the
// URL never does, as a standby with hot_standby = off. The server does not stop: the
// stream is left alone.
func TestE2EAnotherHostThatTakesNoConnectionsIsNoShutdown(t *testing.T) {
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

// unavailable is the address of a server without connections now.
func unavailable(t *testing.T) string {
	t.Helper()
	return testserver.Serve(t, func(conn net.Conn) {
		backend := pgproto3.NewBackend(conn, conn)
		if _, err := backend.ReceiveStartupMessage(); err == nil {
			backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P03", Message: "the database system is not accepting connections"})
			_ = backend.Flush()
		}
	})
}

// Failure mode 56. (The settings are for wal's tests.)
func TestCommitsThatWaitForTheConnectorAreWarnedOfOnce(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Setting("synchronous_standby_names", `standby, "cdc-outbox"`), pgtest.Setting("synchronous_commit", "local"))
	d := newDatabase(t, server.NewDatabase(t))
	i := d.start(&fakeStore{}, d.gate).streams()
	d.kill()
	d.publish(1, 1)
	d.finish(i)
	warned := i.logs.FilterMessage(catalog.CommitsWait).All()
	if len(warned) != 1 || warned[0].ContextMap()["application_name"] != "cdc-outbox" {
		t.Errorf("warnings: %v, want one", warned)
	}

	named := mustParse(t, d.url)
	query := named.Query()
	query.Set("application_name", "publisher")
	named.RawQuery = query.Encode()
	d.opts.URL = named.String()
	i = d.start(&fakeStore{}, d.gate).streams()
	i.stop()
	if i.logs.FilterMessage(catalog.CommitsWait).Len() > 0 {
		t.Error("warned although the setting names another")
	}
}

// Failure modes 76 and 77: the log tells of a version with a defect, once for all
// sessions.
func TestDefectsOfTheServersVersionAreWarnedOfOnce(t *testing.T) {
	d := outbox(t)
	i := d.run().streams()
	d.publish(1, 1)
	d.kill()
	d.publish(1, 1)
	eventually(t, "a look at the slot", func() bool { return i.status().WALStatus != "" })
	d.finish(i)
	version := must.Get(strconv.Atoi(d.text("SHOW server_version_num")))(t)
	for _, defect := range catalog.Defects(version) {
		text, _ := defect.Describe(version)
		if n := i.logs.FilterMessage(text).Len(); n != 1 {
			t.Errorf("warned %d times: %s", n, text)
		}
	}
	if n := i.logs.FilterMessageSnippet("has a defect").Len(); n != len(catalog.Defects(version)) {
		t.Errorf("%d warnings of defects", n)
	}
}
