package rig

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
)

// Relay stands for a network: a process that passes on the bytes of both directions,
// each after a delay, up to window bytes at a time. Its address is none of loopback
// where the machine has another, as programs treat loopback in ways of its own.
type Relay struct {
	Addr    string
	process *Process
}

const (
	// relayRole makes of a benchmark's program a relay.
	relayRole = "rig-relay"
	// window is the most bytes on their way in a direction of a connection.
	window = 16 << 20
	// parcels is the most reads on their way: a walsender sends each row by itself.
	parcels = 1 << 16
	// relayRead is how much the relay reads at once.
	relayRead = 64 << 10
)

// outward is an address of this machine, not of loopback if there is another.
func outward() (string, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP.String(), nil
		}
	}
	return "127.0.0.1", nil
}

// StartRelay starts a relay in front of the target. The program's main must be Main.
func StartRelay(ctx context.Context, target string, delay time.Duration) (*Relay, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	host, err := outward()
	if err != nil {
		return nil, err
	}
	port, err := freeport.Take()
	if err != nil {
		return nil, err
	}
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	r := &Relay{Addr: addr}
	if r.process, err = Start("relay", exec.Command(self, relayRole, addr, target, delay.String())); err != nil {
		return nil, err
	}
	err = await.Ready(ctx, r.process.Exited(), func(ctx context.Context) error {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	if err != nil {
		err = r.process.Explain(err)
		r.Stop()
		return nil, fmt.Errorf("start a relay at %s: %w", addr, err)
	}
	return r, nil
}

// Stop ends the relay, with its connections.
func (r *Relay) Stop() { r.process.Kill() }

// serveRelay is the relay's process.
func serveRelay(ctx context.Context, args []string) error {
	delay, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	for {
		client, err := listener.Accept()
		if err != nil {
			return err
		}
		go join(ctx, client, args[1], delay)
	}
}

// join connects a client to the target until either side ends the connection.
func join(ctx context.Context, client net.Conn, target string, delay time.Duration) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", target) //nolint:gosec // the benchmark says where to
	if err != nil {
		return // to the client, the server is down
	}
	defer func() { _ = server.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() {
		_ = client.Close()
		_ = server.Close()
	})
	var ways sync.WaitGroup
	for _, ends := range [][2]net.Conn{{client, server}, {server, client}} {
		way := way{ends[0], ends[1], delay, semaphore.NewWeighted(window), make(chan parcel, parcels)}
		ways.Go(func() { defer cancel(); way.send(ctx) })
		ways.Go(func() { way.take(ctx) })
	}
	ways.Wait()
}

// way is one direction of a connection.
type way struct {
	from, to net.Conn
	delay    time.Duration
	room     *semaphore.Weighted
	line     chan parcel
}

// parcel is bytes on their way.
type parcel struct {
	bytes []byte
	due   time.Time
}

// take reads, and closes the line behind the last bytes.
func (w way) take(ctx context.Context) {
	defer close(w.line)
	buf := make([]byte, relayRead)
	for {
		n, err := w.from.Read(buf)
		if n == 0 && err != nil || w.room.Acquire(ctx, int64(n)) != nil {
			return
		}
		select {
		case w.line <- parcel{bytes.Clone(buf[:n]), time.Now().Add(w.delay)}:
		case <-ctx.Done():
			return
		}
	}
}

// send writes what is due, until the line is at its end.
func (w way) send(ctx context.Context) {
	for p := range w.line {
		if wait := time.Until(p.due); wait > 0 && backoff.Sleep(ctx, wait) != nil {
			return
		}
		if _, err := w.to.Write(p.bytes); err != nil {
			return
		}
		w.room.Release(int64(len(p.bytes)))
	}
}
