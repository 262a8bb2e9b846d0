package wal

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

// stalled is a connection whose next write, once armed, returns only when the
// answer was read and somebody reads on: pgconn does so in the background of a
// write that takes longer than 15 ms.
type stalled struct {
	net.Conn
	mu    sync.Mutex
	again *sync.Cond
	armed bool
	reads int // that were begun
}

func (s *stalled) Read(b []byte) (int, error) {
	s.mu.Lock()
	s.reads++
	s.mu.Unlock()
	s.again.Broadcast()
	return s.Conn.Read(b)
}

func (s *stalled) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.reads
	n, err := s.Conn.Write(b)
	for s.armed && s.reads < from+2 {
		s.again.Wait()
	}
	s.armed = false
	return n, err
}

// A connection that something still reads in the background is not taken over
// before that has ended: it would take the server's answer away.
func TestStreamTakesOverAConnectionThatIsBeingRead(t *testing.T) {
	s := newSource(t, pgtest.Shared(t), `CREATE TABLE t (id int)`)
	cfg, err := pgconn.ParseConfig(s.url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.RuntimeParams["replication"] = "database"
	dial := cfg.DialFunc
	var slow *stalled
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		slow = &stalled{Conn: conn}
		slow.again = sync.NewCond(&slow.mu)
		return slow, err
	}
	conn, err := pgconn.ConnectConfig(pgtest.Context(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	slow.mu.Lock()
	slow.armed = true
	slow.mu.Unlock()
	if _, err := conn.Exec(pgtest.Context(t), "IDENTIFY_SYSTEM").ReadAll(); err != nil {
		t.Fatal(err)
	}
	stream, err := Open(pgtest.Context(t), conn, s.options)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close(pgtest.Context(t)) }()
	s.exec(t, `INSERT INTO t VALUES (1)`)
	for {
		msg, err := stream.Next(pgtest.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		if msg.Kind == Insert {
			return
		}
	}
}
