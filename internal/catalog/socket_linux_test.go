package catalog

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// pair returns a socket and the other end.
func pair(t *testing.T, network, address string) (*socket, net.Conn) {
	t.Helper()
	listener := must.Get(net.Listen(network, address))(t)
	defer listener.Close()
	dialled := must.Get(net.Dial(network, listener.Addr().String()))(t)
	peer := must.Get(listener.Accept())(t)
	s := must.Get(newSocket(dialled))(t)
	t.Cleanup(func() { _ = s.Close(); _ = peer.Close() })
	return s, peer
}

func networks(t *testing.T, test func(t *testing.T, s *socket, peer net.Conn)) {
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		t.Run(network, func(t *testing.T) {
			s, peer := pair(t, network, address)
			test(t, s, peer)
		})
	}
}

// Answers coming at any moment around the beginning of the wait wake the reader.
func TestSocketMissesNoAnswer(t *testing.T) {
	networks(t, func(t *testing.T, s *socket, peer net.Conn) {
		var answering sync.WaitGroup
		answering.Go(func() { _, _ = io.Copy(peer, peer) })
		defer answering.Wait()
		defer s.Close()
		must.OK(t, s.SetDeadline(time.Now().Add(time.Minute)))
		b := make([]byte, 64)
		for i := range 50_000 {
			must.Get(s.Write(b[:1]))(t)
			if n, err := s.Read(b); n != 1 || err != nil {
				t.Fatalf("answer %d: %d bytes, %v", i, n, err)
			}
			if i%1000 != 0 {
				continue
			}
			must.OK(t, s.SetReadDeadline(time.Unix(1, 0))) // an interrupted wait leaves the bell armed
			if _, err := s.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("read after the deadline: %v", err)
			}
			must.OK(t, s.SetReadDeadline(time.Now().Add(time.Minute)))
		}
	})
}

// A wait ends at its deadline, even a deadline set meanwhile, at the other end's
// close, and at the socket's.
func TestSocketWaitEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(s *socket, peer net.Conn)
		want error
	}{
		"deadline": {func(s *socket, _ net.Conn) { _ = s.SetReadDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
		"peer":     {func(_ *socket, peer net.Conn) { _ = peer.Close() }, io.EOF},
		"close":    {func(s *socket, _ net.Conn) { _ = s.Close() }, net.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			networks(t, func(t *testing.T, s *socket, peer net.Conn) {
				ended := make(chan error)
				go func() {
					_, err := s.Read(make([]byte, 1))
					ended <- err
				}()
				c.end(s, peer)
				if err := <-ended; !errors.Is(err, c.want) {
					t.Errorf("read: %v; want %v", err, c.want)
				}
			})
		})
	}
}
