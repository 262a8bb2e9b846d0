package sink

import (
	"context"
	"net"
	"sync"
)

// writeBarrier holds back what the client writes while a round is being handed
// to it.
//
// The previous flush may have left a loop of the client running. That loop may
// take the first records of a share before the others are buffered, and send
// them as a batch of their own. If the broker refused that batch before the
// share was whole, the rest would start a new sequence and be written ahead of
// it. With the barrier the refusal comes later, and then the client fails
// everything that it has buffered for the partition.
type writeBarrier struct{ mu sync.RWMutex }

// close holds all writes until open. It does not wait for writes in progress:
// their bytes were encoded before.
func (g *writeBarrier) close() { g.mu.Lock() }

func (g *writeBarrier) open() { g.mu.Unlock() }

// dialer returns dial with the barrier in each of its connections.
func (g *writeBarrier) dialer(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &gatedConn{Conn: conn, gate: g}, nil
	}
}

type gatedConn struct {
	net.Conn
	gate *writeBarrier
}

// Write implements net.Conn.
func (c *gatedConn) Write(p []byte) (int, error) {
	c.gate.mu.RLock()
	c.gate.mu.RUnlock() //nolint:staticcheck // passing through is the point
	return c.Conn.Write(p)
}
