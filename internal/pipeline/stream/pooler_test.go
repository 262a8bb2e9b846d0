package stream

import (
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// PgBouncer takes neither a replication connection nor unknown parameters. The error is
// permanent: the operator is told to connect directly.
func TestAPoolerThatRefusesTheLogin(t *testing.T) {
	d := outbox(t)
	u := mustParse(t, d.opts.URL)
	u.Host = refuser(t)
	d.opts.URL = u.String()
	i := d.run()
	i.wantEnd(failure.Config, "08P01")
	if remedy := failure.RemedyOf(i.err); !matches("directly.*source.mode: poll", remedy) {
		t.Errorf("the remedy is %q", remedy)
	}
}

// refuser answers each login as PgBouncer 1.18 does.
func refuser(t *testing.T) (address string) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			backend := pgproto3.NewBackend(conn, conn)
			if _, err := backend.ReceiveStartupMessage(); err == nil {
				backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: pgerrcode.ProtocolViolation, Message: "unsupported startup parameter: bytea_output"})
				_ = backend.Flush()
			}
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
	return l.Addr().String()
}
