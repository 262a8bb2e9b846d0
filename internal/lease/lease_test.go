package lease

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is a connection under the lease, and the other end.
func pair(t *testing.T, l *Lease) (ours, peer net.Conn) {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	ours = l.Conn(must.Get(net.Dial("tcp", listener.Addr().String()))(t))
	peer = must.Get(listener.Accept())(t)
	t.Cleanup(func() {
		_ = ours.Close()
		_ = peer.Close()
	})
	must.OK(t, peer.SetDeadline(time.Now().Add(time.Minute)))
	return ours, peer
}

// suspend has the lease run out as for a suspended process: the timer has not noticed yet.
func (l *Lease) suspend() { l.until.Store(1) }

func never(t *testing.T) func() { return func() { t.Error("the lease ran out by itself") } }

func TestNothingIsWrittenWithoutTheLease(t *testing.T) {
	l := New(never(t))
	ours, peer := pair(t, l)
	if n, err := ours.Write([]byte("a")); n != 0 || err == nil {
		t.Errorf("%d bytes written, %v: the lease was never held", n, err)
	}
	l.Renew(Never) // not begun
	if l.Held() {
		t.Error("held before its beginning")
	}
	l.Set(Never)
	must.Get(ours.Write([]byte("b")))(t)
	l.suspend()
	if n, err := ours.Write([]byte("c")); n != 0 || err == nil {
		t.Errorf("%d bytes written, %v, after the lease", n, err)
	}
	l.Renew(Now().Add(time.Hour))
	l.Renew(Now()) // lasts for longer already
	must.Get(ours.Write([]byte("d")))(t)
	got := make([]byte, 2)
	must.Get(io.ReadFull(peer, got))(t)
	_ = ours.Close()
	if more, _ := io.ReadAll(peer); string(got)+string(more) != "bd" {
		t.Errorf("%q arrived, and %q", got, more)
	}
	l.End()
	if l.Renew(Never); l.Held() {
		t.Error("held after its end")
	}
}

// A process may be suspended in the middle of a write.
func TestWriteStopsInTheMiddle(t *testing.T) {
	l := New(never(t))
	l.Set(Never)
	ours, peer := pair(t, l)
	all := make([]byte, 64<<20) // more than the sockets hold
	written := make(chan int)
	go func() {
		n, err := ours.Write(all)
		if err == nil {
			t.Error("the write went on to its end")
		}
		written <- n
	}()
	must.Get(io.ReadFull(peer, make([]byte, 1<<20)))(t)
	l.suspend()
	rest := make(chan int64)
	go func() { // which makes room
		n, _ := io.Copy(io.Discard, peer)
		rest <- n
	}()
	n := <-written
	_ = ours.Close()
	if got := 1<<20 + int(<-rest); got > n || n >= len(all) {
		t.Errorf("%d bytes written and %d arrived, of %d", n, got, len(all))
	}
}

// fill writes until the sockets are full.
func fill(t *testing.T, ours net.Conn) (n int) {
	t.Helper()
	part := make([]byte, 1<<20)
	for {
		must.OK(t, ours.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
		wrote, err := ours.Write(part)
		n += wrote
		switch {
		case err == nil, n == 0 && errors.Is(err, os.ErrDeadlineExceeded): // a busy machine may not have begun in time
		case errors.Is(err, os.ErrDeadlineExceeded):
			return n
		default:
			t.Fatal(err)
		}
	}
}

// Bytes that the kernel has not sent when the lease runs out never arrive, nor do those of a
// connection that the client closes, as after a request without an answer.
func TestUnsentIsTakenBack(t *testing.T) {
	for name, end := range map[string]func(l *Lease, ours net.Conn, out <-chan struct{}){
		"the lease runs out":   func(l *Lease, _ net.Conn, out <-chan struct{}) { l.Set(Now().Add(time.Millisecond)); <-out },
		"the lease ends":       func(l *Lease, _ net.Conn, _ <-chan struct{}) { l.End() },
		"the client closes it": func(_ *Lease, ours net.Conn, _ <-chan struct{}) { _ = ours.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			out := make(chan struct{})
			l := New(func() { close(out) })
			l.Set(Never)
			ours, peer := pair(t, l)
			n := fill(t, ours)
			end(l, ours, out)
			got, err := io.Copy(io.Discard, peer)
			if err == nil || got >= int64(n) {
				t.Errorf("%d of %d bytes arrived, %v: want a connection that was reset", got, n, err)
			}
			if _, err := ours.Read(make([]byte, 1)); err == nil {
				t.Error("the connection is open")
			}
		})
	}
}

// addressEnv has a process of the test write to the address, until killed.
const addressEnv = "CDC_OUTBOX_TEST_LEASE"

// Bytes that the kernel has not sent when the process is killed never arrive.
func TestUnsentOfAKilledProcessIsTakenBack(t *testing.T) {
	if to := os.Getenv(addressEnv); to != "" {
		l := New(func() {})
		l.Set(Never)
		ours := l.Conn(must.Get(net.Dial("tcp", to))(t))
		fmt.Fprintln(os.Stdout, fill(t, ours))
		_, _ = io.Copy(io.Discard, os.Stdin) // for ever
	}
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	process := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	process.Env = append(os.Environ(), addressEnv+"="+listener.Addr().String())
	must.Get(process.StdinPipe())(t)
	said := must.Get(process.StdoutPipe())(t)
	must.OK(t, process.Start())
	peer := must.Get(listener.Accept())(t)
	defer peer.Close()
	var n int64
	_, err := fmt.Fscan(said, &n)
	must.OK(t, errors.Join(err, process.Process.Kill()))
	_ = process.Wait()
	must.OK(t, peer.SetDeadline(time.Now().Add(time.Minute)))
	if got, err := io.Copy(io.Discard, peer); err == nil || got >= n {
		t.Errorf("%d of %d bytes arrived, %v: want a connection that was reset", got, n, err)
	}
}

func TestNilIsAlwaysHeld(t *testing.T) {
	var l *Lease
	l.Renew(Now())
	l.Set(0)
	l.End()
	ours, peer := pair(t, l)
	must.Get(ours.Write([]byte("a")))(t)
	must.Get(peer.Read(make([]byte, 1)))(t)
	if !l.Held() {
		t.Error("not held")
	}
}

func TestInstantsEndAtNever(t *testing.T) {
	if got := (Never - 1).Add(time.Hour); got != Never {
		t.Errorf("an hour later it is %d", got)
	}
	if got := Instant(time.Minute).Add(-time.Second); got != Instant(59*time.Second) {
		t.Errorf("a second earlier it is %d", got)
	}
	if got := Instant(1).Add(time.Second); got != Instant(time.Second)+1 {
		t.Errorf("a second later it is %d", got)
	}
}
