package wal

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// never is an interval longer than any test.
const never = time.Hour

// statusUpdate is a standby status update as the server reads it.
type statusUpdate struct {
	written, flushed, applied pg.LSN
	sent                      time.Time
	requestReply              bool
}

// statusServer is the server's end of a connection with a statusSender.
type statusServer struct {
	net.Conn
	frames   frameReader
	received atomic.Uint64 // of the sender
}

func newStatusServer(t *testing.T, start pg.LSN, interval time.Duration) (*statusServer, *statusSender) {
	t.Helper()
	client, conn := net.Pipe()
	s := &statusServer{Conn: conn}
	s.frames.src = conn
	s.received.Store(uint64(start))
	must.OK(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	sender := startStatusSender(client, &s.received, start, interval, nil)
	t.Cleanup(func() {
		_ = conn.Close()
		sender.poke() // fails, and so ends the sender if the test has not
		sender.done.Wait()
		_ = client.Close()
	})
	return s, sender
}

func (s *statusServer) next(t *testing.T) statusUpdate {
	t.Helper()
	kind, body, err := s.frames.next()
	if err != nil {
		t.Fatal(err)
	}
	if kind != frameCopyData || len(body) != 34 || body[0] != pglogrepl.StandbyStatusUpdateByteID {
		t.Fatalf("frame %q %q is no standby status update", kind, body)
	}
	field := func(i int) uint64 { return binary.BigEndian.Uint64(body[1+8*i:]) }
	return statusUpdate{
		written: pg.LSN(field(0)), flushed: pg.LSN(field(1)), applied: pg.LSN(field(2)),
		sent: postgresTime(field(3)), requestReply: body[33] == 1,
	}
}

// wantFlushed asserts what the next update confirms.
func (s *statusServer) wantFlushed(t *testing.T, want pg.LSN) statusUpdate {
	t.Helper()
	u := s.next(t)
	if u.flushed != want || u.applied != want {
		t.Errorf("confirmed %s, applied %s; want %s", u.flushed, u.applied, want)
	}
	return u
}

func TestStatusBeginsAtStart(t *testing.T) {
	server, sender := newStatusServer(t, 0x100, never)
	sender.poke()
	if u := server.wantFlushed(t, 0x100); u.written != 0x100 || u.requestReply || time.Since(u.sent).Abs() > time.Minute {
		t.Errorf("update %+v", u)
	}
}

func TestStatusIsSentOnTimeAndAsksForReply(t *testing.T) {
	server, _ := newStatusServer(t, 0x100, time.Millisecond)
	for range 3 {
		if u := server.next(t); !u.requestReply {
			t.Errorf("update %+v does not ask for a reply", u)
		}
	}
}

func TestStatusConfirmsOnlyWhatWasReceivedAndNeverLess(t *testing.T) {
	server, sender := newStatusServer(t, 0x100, never)
	server.received.Store(0x200)
	for _, step := range []struct{ confirm, want pg.LSN }{
		{0x150, 0x150},
		{0x250, 0x200}, // the server has sent no further
	} {
		sender.confirm(step.confirm)
		server.wantFlushed(t, step.want)
	}
	for _, earlier := range []pg.LSN{0x250, 0x120, 0} {
		sender.confirm(earlier)
	}
	server.received.Store(0x300)
	sender.poke()
	server.wantFlushed(t, 0x250)
}

// A server not reading must not block Confirm.
func TestStatusConfirmNeverBlocks(t *testing.T) {
	server, sender := newStatusServer(t, 0x100, never)
	server.received.Store(0x1000)
	for lsn := pg.LSN(0x101); lsn <= 0x1000; lsn++ {
		sender.confirm(lsn)
		sender.poke()
	}
	var last statusUpdate
	for last.flushed != 0x1000 {
		last = server.next(t)
	}
}

func TestStatusStopSendsTheLastPosition(t *testing.T) {
	server, sender := newStatusServer(t, 0x100, never)
	server.received.Store(0x200)
	stopped := make(chan error, 1)
	sender.confirmed.Store(0x200) // without the wake-up
	go func() { stopped <- sender.stop() }()
	server.wantFlushed(t, 0x200)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestStatusFailureEndsTheReader(t *testing.T) {
	client, conn := net.Pipe()
	sender := startStatusSender(brokenWriter{client}, new(atomic.Uint64), 0x100, never, nil)
	sender.poke()
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("read: %v", err)
	}
	if err := sender.stop(); !errors.Is(err, errBroken) {
		t.Errorf("stop: %v; want %v", err, errBroken)
	}
	_ = conn.Close()
}

var errBroken = errors.New("broken")

// brokenWriter is a connection with failing writes.
type brokenWriter struct{ net.Conn }

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }
