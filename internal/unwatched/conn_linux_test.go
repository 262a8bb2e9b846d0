package unwatched

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/trace"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// networks runs a test with a connection and the other end, of each kind.
func networks(t *testing.T, test func(t *testing.T, plain, peer net.Conn)) {
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		t.Run(network, func(t *testing.T) {
			listener := must.Get(net.Listen(network, address))(t)
			defer listener.Close()
			plain := must.Get(net.Dial(network, listener.Addr().String()))(t)
			defer plain.Close()
			peer := must.Get(listener.Accept())(t)
			defer peer.Close()
			must.OK(t, plain.SetDeadline(time.Now().Add(time.Minute)))
			must.OK(t, peer.SetDeadline(time.Now().Add(time.Minute)))
			test(t, plain, peer)
		})
	}
}

// The runtime's trace has the stack of each call it watches.
func TestRuntimeWatchesNoCall(t *testing.T) {
	watched := func(do func()) bool {
		var log bytes.Buffer
		must.OK(t, trace.Start(&log))
		defer trace.Stop()
		for range 10 {
			do()
		}
		trace.Stop()
		callers := []string{"syscall.write", "unwatched.transfer", "unwatched.setTimer", "unwatched.readTimer", "unix.Nanosleep"}
		return slices.ContainsFunc(callers, func(name string) bool { return bytes.Contains(log.Bytes(), []byte(name)) })
	}
	networks(t, func(t *testing.T, plain, peer net.Conn) {
		echo := func(c, peer net.Conn) func() {
			b := []byte("x")
			return func() {
				must.Get(c.Write(b))(t)
				must.Get(peer.Read(b))(t)
				must.Get(peer.Write(b))(t)
				must.Get(c.Read(b))(t)
			}
		}
		if watched(echo(Conn(plain), Conn(peer))) {
			t.Error("the runtime watched a read or a write")
		}
		if !watched(echo(plain, peer)) {
			t.Error("the trace does not show what package net does: this test shows nothing")
		}
	})
	timer := must.Get(NewTimer())(t)
	defer timer.Close()
	if watched(func() { must.OK(t, timer.Wait(time.Millisecond)) }) {
		t.Error("the runtime watched a wait")
	}

	nap := func() { Nap(time.Millisecond) }
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	if watched(nap) {
		t.Error("the runtime watched a nap")
	}
	napping.Store(true)
	beside := watched(nap)
	napping.Store(false)
	if !beside {
		t.Error("two naps at once keep two processors")
	}
	runtime.GOMAXPROCS(1)
	if !watched(nap) {
		t.Error("a nap keeps the only processor")
	}
}

// Otherwise a collection would wait for the nap's end.
func TestGarbageCollectionEndsANap(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	over := make(chan struct{})
	go func() {
		defer close(over)
		Nap(time.Hour)
	}()
	for {
		select {
		case <-over:
			return
		default:
			runtime.GC()
		}
	}
}

// Writes beyond a single call, and beyond the socket's room, arrive whole.
func TestAllArrivesInOrder(t *testing.T) {
	networks(t, func(t *testing.T, plain, peer net.Conn) {
		sizes := []int{1, atOnce, atOnce, 2 * atOnce, atOnce + 1, atOnce, atOnce - 1}
		all := make([]byte, 8*atOnce)
		for i := range all {
			all[i] = byte(i >> 8)
		}
		var writing sync.WaitGroup
		defer writing.Wait()
		writing.Go(func() {
			defer peer.Close()
			sent := 0
			for _, size := range sizes {
				if n, err := Conn(peer).Write(all[sent : sent+size]); n != size || err != nil {
					t.Errorf("%d bytes written of %d, %v", n, size, err)
				}
				sent += size
			}
		})
		got := must.Get(io.ReadAll(Conn(plain)))(t)
		if want := all[:7*atOnce+1]; !bytes.Equal(got, want) {
			t.Errorf("%d bytes came, not the %d that were sent", len(got), len(want))
		}
	})
}

// Whoever judges errors sees those of package net.
func TestErrorsAreThoseOfNet(t *testing.T) {
	read := func(c net.Conn) error { _, err := c.Read(make([]byte, 8)); return err }
	write := func(c net.Conn) error {
		for {
			if _, err := c.Write(make([]byte, 1<<10)); err != nil {
				return err
			}
		}
	}
	for name, c := range map[string]struct {
		before func(c, peer net.Conn)
		do     func(c net.Conn) error
	}{
		"read after the end":        {func(_, peer net.Conn) { _ = peer.Close() }, read},
		"read after the deadline":   {func(c, _ net.Conn) { _ = c.SetReadDeadline(time.Unix(1, 0)) }, read},
		"read until the deadline":   {func(c, _ net.Conn) { _ = c.SetReadDeadline(time.Now().Add(time.Millisecond)) }, read},
		"read of a closed one":      {func(c, _ net.Conn) { _ = c.Close() }, read},
		"write after the end":       {func(_, peer net.Conn) { _ = peer.Close() }, write},
		"write until the deadline":  {func(c, _ net.Conn) { _ = c.SetWriteDeadline(time.Now().Add(time.Millisecond)) }, write},
		"write to a closed one":     {func(c, _ net.Conn) { _ = c.Close() }, write},
		"read while it is closed":   {func(c, _ net.Conn) { time.AfterFunc(time.Millisecond, func() { _ = c.Close() }) }, read},
		"write while it is closed":  {func(c, _ net.Conn) { time.AfterFunc(time.Millisecond, func() { _ = c.Close() }) }, write},
		"read while the other ends": {func(_, peer net.Conn) { time.AfterFunc(time.Millisecond, func() { _ = peer.Close() }) }, read},
	} {
		t.Run(name, func(t *testing.T) {
			want := map[string]string{}
			networks(t, func(t *testing.T, plain, peer net.Conn) {
				c.before(plain, peer)
				want[plain.RemoteAddr().Network()] = kind(c.do(plain))
			})
			networks(t, func(t *testing.T, plain, peer net.Conn) {
				ours := Conn(plain)
				c.before(ours, peer)
				if got, want := kind(c.do(ours)), want[plain.RemoteAddr().Network()]; got != want {
					t.Errorf("got %s, package net has %s", got, want)
				}
			})
		})
	}
}

// kind is everything asked of an error.
func kind(err error) string {
	var op string
	if e, ok := errors.AsType[*net.OpError](err); ok {
		op = e.Op + " " + e.Net
	}
	_, system := errors.AsType[*os.SyscallError](err)
	return fmt.Sprintf("%q, of the system: %t, end: %t, closed: %t, deadline: %t", op, system,
		errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded))
}

func TestClosedTimerEndsTheWait(t *testing.T) {
	timer := must.Get(NewTimer())(t)
	ended := make(chan error)
	go func() { ended <- timer.Wait(time.Hour) }()
	time.AfterFunc(time.Millisecond, func() { _ = timer.Close() })
	if err := <-ended; err == nil {
		t.Error("the wait ended as if the hour were over")
	}
}
