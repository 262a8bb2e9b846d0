// Package proxy is a TCP and Unix socket proxy that misbehaves on command.
// Tests put it between the connector and PostgreSQL or Kafka to get the network
// faults a healthy machine does not produce.
//
// Invariants:
//
//  1. Without a Fault the bytes of each direction arrive unchanged and in order,
//     and the end of one side's stream closes the other side's.
//  2. A Fault applies to bytes that arrive after Set returned, on connections
//     open by then as well as on later ones; bytes read before may still pass
//     as they would have.
//  3. After Close returns, no goroutine and no socket of the proxy is left.
//
// Non-goals: it knows no protocol (a corrupted byte may hit any field, and under
// TLS is a TLS error), it shapes no bandwidth, and it has no half-closed
// connections, which neither PostgreSQL's nor Kafka's clients use.
package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
)

// Direction is one of the two ways through a connection.
type Direction uint8

// The directions.
const (
	Up   Direction = iota // from the client to the server
	Down                  // from the server to the client
)

// Proxy forwards each connection made to Addr to its target. The methods may be
// called from any goroutine.
type Proxy struct {
	listener net.Listener
	choose   func(client net.Conn) (target string, err error)
	faults   [2]atomic.Pointer[Fault] // by Direction
	bytes    [2]atomic.Int64          // by Direction
	refuse   atomic.Bool
	hold     atomic.Pointer[hold] // nil: nothing is held
	running  sync.WaitGroup       // the accept loop and every link's goroutines

	mu     sync.Mutex
	closed bool
	links  map[*link]struct{} // the open connections
}

// Listen starts a proxy from the address listen, usually "127.0.0.1:0", to the
// address target, which is dialled anew for each connection and need not be up.
// An address is host:port, or the path of a Unix socket where it begins with a
// slash. The caller must Close the proxy.
func Listen(listen, target string) (*Proxy, error) {
	p, err := Route(listen, func(net.Conn) (string, error) { return target, nil })
	if err != nil {
		return nil, fmt.Errorf("listen as proxy for %s: %w", target, err)
	}
	return p, nil
}

// Route is Listen with a target for each connection. choose is called on the
// connection's goroutine; an error closes the connection.
func Route(listen string, choose func(client net.Conn) (target string, err error)) (*Proxy, error) {
	l, err := net.Listen(network(listen), listen)
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, choose: choose, links: map[*link]struct{}{}}
	p.Set(Up, Fault{})
	p.Set(Down, Fault{})
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the address that clients connect to, in the form Listen takes.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Set replaces the fault of one direction. The zero Fault heals it.
func (p *Proxy) Set(d Direction, f Fault) { p.faults[d].Store(&f) }

// Refuse makes the proxy close new connections at once, as if the server were
// down, or accept them again. Open connections stay.
func (p *Proxy) Refuse(refuse bool) { p.refuse.Store(refuse) }

// Cut closes both sides of every open connection; new ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Hold holds back everything on connections whose client began with bytes that
// match, on those that are open and on new ones, until release is called. Then
// all arrives that either side sent, also if it has closed the connection
// since. A single Hold is in force at a time.
func (p *Proxy) Hold(match func(first []byte) bool) (release func()) {
	h := &hold{match, make(chan struct{})}
	p.hold.Store(h)
	return sync.OnceFunc(func() {
		p.hold.Store(nil)
		close(h.released)
	})
}

// Bytes returns how many bytes were passed on in one direction, over all
// connections so far, including those a delay still holds back.
func (p *Proxy) Bytes(d Direction) int64 { return p.bytes[d].Load() }

// Close stops listening, cuts every connection and waits until all is gone.
// Close may be called more than once.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.Cut()
	p.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// accept is the goroutine taking connections until the listener is closed.
func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.refuse.Load() {
			_ = client.Close()
			continue
		}
		p.running.Go(func() { p.serve(client) })
	}
}

// serve connects a client to the target.
func (p *Proxy) serve(client net.Conn) {
	server, err := p.dial(client)
	if err != nil {
		_ = client.Close() // to the client the server is down
		return
	}
	p.join(client, server)
}

func (p *Proxy) dial(client net.Conn) (net.Conn, error) {
	target, err := p.choose(client)
	if err != nil {
		return nil, err
	}
	return net.Dial(network(target), target)
}

// join pumps until the connection ends.
func (p *Proxy) join(client, server net.Conn) {
	l := &link{client: client, server: server, done: make(chan struct{})}
	defer l.close()
	if !p.add(l) {
		return
	}
	defer p.remove(l)

	var up sync.WaitGroup
	up.Go(func() { p.pump(l, Up) })
	p.pump(l, Down)
	up.Wait()
}

// add registers a link for Cut, unless the proxy is closed.
func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// link is a single client's connection through the proxy.
type link struct {
	client, server net.Conn
	once           sync.Once
	done           chan struct{}          // closed with the sockets
	first          atomic.Pointer[[]byte] // the client's first bytes
}

// close closes both sides, which ends both pumps.
func (l *link) close() {
	l.once.Do(func() {
		close(l.done)
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

// ends returns where a direction's bytes come from and go to.
func (l *link) ends(d Direction) (src io.Reader, dst io.Writer) {
	if d == Up {
		return l.client, l.server
	}
	return l.server, l.client
}

func network(address string) string {
	if strings.HasPrefix(address, "/") {
		return "unix"
	}
	return "tcp"
}
