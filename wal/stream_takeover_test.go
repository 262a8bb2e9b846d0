package wal

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

// slowConn has writes that return late while slow is set.
type slowConn struct {
	net.Conn
	slow *atomic.Bool
}

func (c slowConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if c.slow.Load() {
		<-time.After(100 * time.Millisecond)
	}
	return n, err
}

// A write that takes long, as on a busy machine, makes pgconn read beside its
// caller, and it stops to do so only after one more read. The stream must not
// lose those bytes.
func TestStreamAfterASlowWrite(t *testing.T) {
	s := newSource(t, pgtest.Shared(t), `CREATE TABLE t (id int)`, `INSERT INTO t VALUES (0)`)
	s.exec(t, `INSERT INTO t VALUES (1)`)
	cfg, err := pgconn.ParseConfig(s.url)
	if err != nil {
		t.Fatal(err)
	}
	var slow atomic.Bool
	dial := cfg.DialFunc
	cfg.RuntimeParams["replication"] = "database"
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return slowConn{conn, &slow}, err
	}
	conn, err := pgconn.ConnectConfig(testContext(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	slow.Store(true)
	if _, err := Identify(testContext(t), conn); err != nil {
		t.Fatal(err)
	}
	slow.Store(false)
	o := s.options
	o.Start = s.confirmedFlush(t)
	stream, err := Open(testContext(t), conn, o)
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{Stream: stream}
	if got := commitOf(t, r.upToCommit(t)); got.End == 0 {
		t.Errorf("commit %+v", got)
	}
	r.close(t)
}
