package lease

import (
	"io"
	"net"
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
	_ = ours.Close()
	if got := must.Get(io.ReadAll(peer))(t); string(got) != "bd" {
		t.Errorf("%q arrived", got)
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

// Bytes that the kernel has not sent when the lease runs out never arrive.
func TestUnsentIsTakenBack(t *testing.T) {
	out := make(chan struct{})
	l := New(func() { close(out) })
	l.Set(Never)
	ours, peer := pair(t, l)
	must.OK(t, ours.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	n, _ := ours.Write(make([]byte, 64<<20)) // until the sockets are full
	l.Set(Now().Add(time.Millisecond))
	<-out
	got, err := io.Copy(io.Discard, peer)
	if err == nil || got >= int64(n) {
		t.Errorf("%d of %d bytes arrived, %v: want a connection that was reset", got, n, err)
	}
	if _, err := ours.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is open")
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
