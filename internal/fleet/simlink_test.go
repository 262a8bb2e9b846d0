package fleet

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// link is a process's way to the brokers, through a virtual network. While a link is held, it
// keeps the bytes under way, as TCP does, and passes them on later.
type link struct {
	network *kfake.VirtualNetwork
	bytes   *atomic.Int64 // passed on, by all links
	life    context.Context
	sever   context.CancelFunc

	mu      sync.Mutex
	latency time.Duration
	holders int           // reasons to hold
	free    chan struct{} // closed while bytes pass
}

func newLink(network *kfake.VirtualNetwork, bytes *atomic.Int64, latency time.Duration) *link {
	l := &link{network: network, bytes: bytes, latency: latency, free: make(chan struct{})}
	l.life, l.sever = context.WithCancel(context.Background())
	close(l.free)
	return l
}

// hold adds a reason to hold, or takes it away.
func (l *link) hold(hold bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case hold:
		if l.holders++; l.holders == 1 {
			l.free = make(chan struct{})
		}
	default:
		if l.holders--; l.holders == 0 {
			close(l.free)
		}
	}
}

func (l *link) slow(latency time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latency = latency
}

// pass waits until bytes may pass.
func (l *link) pass(ctx context.Context) error {
	l.mu.Lock()
	free, latency := l.free, l.latency
	l.mu.Unlock()
	arrival := time.NewTimer(latency)
	defer arrival.Stop()
	select {
	case <-arrival.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-free:
	case <-ctx.Done():
		return ctx.Err()
	}
	return l.life.Err()
}

// dial is for a client of the process.
func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := l.pass(ctx); err != nil {
		return nil, err
	}
	far, err := l.network.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	near, inner := net.Pipe()
	hangUp := context.AfterFunc(l.life, func() { _, _ = far.Close(), inner.Close() })
	pump := func(from, to net.Conn) {
		defer hangUp()
		defer to.Close()
		defer from.Close()
		chunk := make([]byte, 64<<10)
		for {
			n, err := from.Read(chunk)
			if err != nil || l.pass(l.life) != nil {
				return
			}
			l.bytes.Add(int64(n))
			if _, err := to.Write(chunk[:n]); err != nil {
				return
			}
		}
	}
	go pump(inner, far)
	go pump(far, inner)
	return near, nil
}
