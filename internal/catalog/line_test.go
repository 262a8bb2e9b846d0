package catalog

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// silence is shorter than answerTimeout, so tests end soon.
const silence = 20 * time.Millisecond

// silentLine is a line to a peer that neither reads nor writes.
func silentLine(t *testing.T) (*line, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() {
		_ = ours.Close()
		_ = theirs.Close()
	})
	return &line{Conn: ours, silence: silence}, theirs
}

func TestLineGivesUpOnSilence(t *testing.T) {
	l, _ := silentLine(t)
	for name, call := range map[string]func([]byte) (int, error){"read": l.Read, "write": l.Write} {
		_, err := call(make([]byte, 1))
		if !errors.Is(err, errSilent) || err.Error() != "no answer from PostgreSQL for 20ms" {
			t.Errorf("%s = %v, want silence", name, err)
		}
		if timeout, ok := errors.AsType[net.Error](err); ok {
			t.Errorf("%s = %v is a net.Error, after which pgconn would go on", name, timeout)
		}
	}
}

// The deadline set by pgconn at the end of a context counts, before and during
// the read.
func TestLineKeepsDeadlines(t *testing.T) {
	l, _ := silentLine(t)
	l.silence = time.Hour
	_ = l.SetDeadline(time.Now())
	if _, err := l.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read after the deadline = %v", err)
	}
	if _, err := l.Write(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("write after the deadline = %v", err)
	}
	_ = l.SetDeadline(time.Time{})
	ended := make(chan error, 1)
	go func() {
		_, err := l.Read(make([]byte, 1))
		ended <- err
	}()
	for reading := false; !reading; {
		l.mu.Lock()
		reading = l.readUntil.After(time.Now())
		l.mu.Unlock()
	}
	_ = l.SetDeadline(time.Now())
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read during which the deadline came = %v", err)
	}
}

func TestLineAsksBeforeItGivesUp(t *testing.T) {
	l, server := silentLine(t)
	asked := 0
	before := l.replace(silence, func() error {
		if asked++; asked == 3 {
			go func() { _, _ = server.Write([]byte("x")) }()
		}
		return nil
	})
	if n, err := l.Read(make([]byte, 1)); n != 1 || err != nil || asked < 3 {
		t.Errorf("read = %d, %v after %d questions, want the late answer", n, err, asked)
	}
	l.replace(before, func() error { return context.DeadlineExceeded })
	_, err := l.Read(make([]byte, 1))
	if _, is := errors.AsType[net.Error](err); is || !errors.Is(err, errSilent) {
		t.Errorf("read = %v, want silence", err)
	}
}

// Every way to open a connection leads to a line, also through TLS.
func TestEveryConnectionIsALine(t *testing.T) {
	url, ctx := pgtest.Shared(t).NewDatabase(t), pgtest.Context(t)
	ordinary := must.Get(Connect(ctx, url))(t)
	defer ordinary.Close(ctx)
	store := must.Get(ConnectStore(ctx, url, "store", nil))(t)
	defer store.Close(ctx)
	pooled := must.Get(ConnectPooled(ctx, url))(t)
	defer pooled.Close(ctx)
	replication := must.Get(ConnectReplication(ctx, url))(t)
	defer replication.Close(ctx)
	for name, at := range map[string]net.Conn{
		"Connect": ordinary.PgConn().Conn(), "ConnectStore": store.PgConn().Conn(),
		"ConnectPooled": pooled.PgConn().Conn(), "ConnectReplication": replication.Conn(),
	} {
		if l := lineOf(at); l == nil || l.silence == 0 {
			t.Errorf("%s: the server may be silent for ever", name)
		}
	}
}
