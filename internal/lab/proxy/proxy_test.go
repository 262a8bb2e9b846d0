package proxy

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of a test, for slow and busy machines.
const patience = time.Minute

// echo starts a server sending back what it gets, and returns the address.
func echo(t *testing.T, address string) string {
	t.Helper()
	l, err := net.Listen(network(address), address)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
	return l.Addr().String()
}

func listen(t *testing.T, address, target string) *Proxy {
	t.Helper()
	p, err := Listen(address, target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// dial connects to a proxy; reads and writes fail after patience.
func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial(network(p.Addr()), p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// exchange sends data and returns as many bytes of the answer.
func exchange(t *testing.T, conn net.Conn, data []byte) []byte {
	t.Helper()
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() {
		if _, err := conn.Write(data); err != nil {
			t.Errorf("write: %v", err)
		}
	})
	got := make([]byte, len(data))
	if _, err := io.ReadFull(conn, got); err != nil {
		t.Fatalf("read: %v", err)
	}
	return got
}

func random(n int) []byte {
	b := make([]byte, n)
	source := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(source.Uint32())
	}
	return b
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// wantEnd asserts that the connection ends rather than stays silent.
func wantEnd(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := conn.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Fatalf("read: %v; want the end of the connection", err)
	}
}

// inFakeTime runs a test of a connection through a proxy, without a network.
func inFakeTime(t *testing.T, test func(t *testing.T, p *Proxy, client, server net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &Proxy{links: map[*link]struct{}{}}
		p.Set(Up, Fault{})
		p.Set(Down, Fault{})
		client, near := net.Pipe()
		far, server := net.Pipe()
		p.running.Go(func() { p.join(near, far) })
		defer p.running.Wait()
		defer p.Cut()
		test(t, p, client, server)
	})
}

// wantSilence asserts that nothing arrives in fake time, not even the end.
func wantSilence(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); !isTimeout(err) {
		t.Fatalf("read %d bytes, %v; want nothing", n, err)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
}

func send(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
}

func TestBytesPassUnchanged(t *testing.T) {
	dir := t.TempDir()
	data := random(300 << 10)
	for _, tc := range []struct {
		name           string
		target, listen string
		up, down       Fault
	}{
		{name: "tcp", target: "127.0.0.1:0", listen: "127.0.0.1:0"},
		{name: "unix socket", target: filepath.Join(dir, "server"), listen: filepath.Join(dir, "proxy")},
		{name: "sliced", target: "127.0.0.1:0", listen: "127.0.0.1:0", up: Fault{Slice: 100}, down: Fault{Slice: 100}},
		{name: "delayed", target: "127.0.0.1:0", listen: "127.0.0.1:0", up: Fault{Delay: time.Millisecond}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := listen(t, tc.listen, echo(t, tc.target))
			p.Set(Up, tc.up)
			p.Set(Down, tc.down)
			if got := exchange(t, dial(t, p), data); !bytes.Equal(got, data) {
				t.Error("the bytes that came back are not those sent")
			}
			if up, down := p.Bytes(Up), p.Bytes(Down); up != int64(len(data)) || down != int64(len(data)) {
				t.Errorf("counted %d bytes up, %d down; want %d each", up, down, len(data))
			}
		})
	}
}

func TestEachConnectionHasItsTarget(t *testing.T) {
	targets, clients := make(chan string, 3), make(chan string, 3)
	targets <- echo(t, "127.0.0.1:0")
	targets <- "" // none
	targets <- echo(t, "127.0.0.1:0")
	p, err := Route("127.0.0.1:0", func(client net.Conn) (string, error) {
		clients <- client.RemoteAddr().String()
		if target := <-targets; target != "" {
			return target, nil
		}
		return "", errors.New("no target")
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	for n := range 3 {
		conn := dial(t, p)
		if got, want := <-clients, conn.LocalAddr().String(); got != want {
			t.Errorf("asked for the target of %s, want %s", got, want)
		}
		if n == 1 {
			wantEnd(t, conn)
			continue
		}
		exchange(t, conn, []byte("x"))
	}
}

func TestDelayHoldsBytesBack(t *testing.T) {
	inFakeTime(t, func(t *testing.T, p *Proxy, client, server net.Conn) {
		p.Set(Down, Fault{Delay: time.Hour})
		started := time.Now()
		send(t, server)
		if _, err := client.Read(make([]byte, 1)); err != nil || time.Since(started) != time.Hour {
			t.Errorf("read: %v after %s", err, time.Since(started))
		}
	})
}

func TestCorruptChangesBytesInItsDirectionOnly(t *testing.T) {
	data := random(64 << 10)
	p := listen(t, "127.0.0.1:0", echo(t, "127.0.0.1:0"))
	conn := dial(t, p)
	p.Set(Up, Fault{Corrupt: 1000})
	damaged := exchange(t, conn, data)
	wrong := 0
	for i := range data {
		if damaged[i] != data[i] {
			wrong++
		}
	}
	if wrong < 30 || wrong > 130 {
		t.Errorf("%d of %d bytes changed; want about one in 1000", wrong, len(data))
	}
	p.Set(Up, Fault{})
	if got := exchange(t, conn, data); !bytes.Equal(got, data) {
		t.Error("bytes changed after the fault was healed")
	}
}

func TestSwallowedConnectionStaysOpen(t *testing.T) {
	for _, d := range []Direction{Up, Down} {
		inFakeTime(t, func(t *testing.T, p *Proxy, client, server net.Conn) {
			from, to := client, server
			if d == Down {
				from, to = server, client
			}
			p.Set(d, Fault{Swallow: true})
			send(t, from)
			wantSilence(t, to)
			p.Cut()
			wantEnd(t, to)
		})
	}
}

// TCP passes nothing on behind bytes that did not arrive.
func TestNothingComesBehindAGap(t *testing.T) {
	inFakeTime(t, func(t *testing.T, p *Proxy, client, server net.Conn) {
		p.Set(Up, Fault{Swallow: true})
		send(t, client)
		wantSilence(t, server)
		p.Set(Up, Fault{})
		send(t, client)
		wantSilence(t, server)
	})
}

func TestSwallowHidesThatTheOtherSideIsGone(t *testing.T) {
	inFakeTime(t, func(t *testing.T, p *Proxy, client, server net.Conn) {
		p.Set(Down, Fault{Swallow: true})
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
		wantSilence(t, client)
	})
}

func TestCutLosesTheAnswerToWhatWasDone(t *testing.T) {
	p := listen(t, "127.0.0.1:0", echo(t, "127.0.0.1:0"))
	conn := dial(t, p)
	exchange(t, conn, []byte("before"))
	p.Set(Down, Fault{Cut: true})
	if _, err := conn.Write([]byte("done")); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, conn)
	if up, down := p.Bytes(Up), p.Bytes(Down); up != 10 || down != 6 {
		t.Errorf("passed %d bytes up and %d down; want 10 and 6", up, down)
	}
	p.Set(Down, Fault{})
	exchange(t, dial(t, p), []byte("after"))
}

func TestCutEndsOpenConnectionsOnly(t *testing.T) {
	p := listen(t, "127.0.0.1:0", echo(t, "127.0.0.1:0"))
	first, second := dial(t, p), dial(t, p)
	exchange(t, first, []byte("x"))
	exchange(t, second, []byte("x"))
	p.Cut()
	wantEnd(t, first)
	wantEnd(t, second)
	exchange(t, dial(t, p), []byte("x"))
}

func TestRefuseClosesNewConnectionsOnly(t *testing.T) {
	p := listen(t, "127.0.0.1:0", echo(t, "127.0.0.1:0"))
	open := dial(t, p)
	exchange(t, open, []byte("x"))
	p.Refuse(true)
	wantEnd(t, dial(t, p))
	exchange(t, open, []byte("x"))
	p.Refuse(false)
	exchange(t, dial(t, p), []byte("x"))
}
