package pgtest

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Pooler stands in for a pooler such as pgpool-II before the server of a database,
// until the test ends: Pooler passes everything on but the answer to
// START_REPLICATION, and then keeps the connection to the server, also when the client
// is gone.
func Pooler(t testing.TB, database string) (behind string) {
	t.Helper()
	u := must.Get(url.Parse(database))(t)
	p := &pooler{listener: must.Get(net.Listen("tcp", "127.0.0.1:0"))(t), target: u.Host}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	u.Host = p.listener.Addr().String()
	return u.String()
}

type pooler struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	sockets []net.Conn
}

func (p *pooler) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.keep(client, server)
		started := make(chan struct{}) // closed by START_REPLICATION
		p.running.Go(func() { up(client, server, started) })
		p.running.Go(func() { down(client, server, started) })
	}
}

// up passes on the client's bytes.
func up(client, server net.Conn, started chan<- struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := client.Read(buf)
		if bytes.Contains(buf[:n], []byte("START_REPLICATION")) {
			close(started)
			_, _ = server.Write(buf[:n])
			_, _ = io.Copy(io.Discard, client)
			return // the connection to the server stays
		}
		if _, writeErr := server.Write(buf[:n]); err != nil || writeErr != nil {
			_ = server.Close()
			return
		}
	}
}

// down passes on the server's bytes.
func down(client, server net.Conn, started <-chan struct{}) {
	defer client.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := server.Read(buf)
		select {
		case <-started:
			n = 0
		default:
		}
		if err != nil {
			return
		}
		_, _ = client.Write(buf[:n]) // the server's end tells of the client's end
	}
}

func (p *pooler) keep(sockets ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sockets = append(p.sockets, sockets...)
	if p.closed {
		p.end()
	}
}

// end closes all sockets. The caller holds mu.
func (p *pooler) end() {
	for _, s := range p.sockets {
		_ = s.Close()
	}
}

func (p *pooler) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.end()
	p.mu.Unlock()
	p.running.Wait()
}
