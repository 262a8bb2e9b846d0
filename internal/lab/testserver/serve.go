package testserver

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Serve is the address of what does something with each connection and then
// closes it. It ends with the test, which closes the connections left.
func Serve(t testing.TB, serve func(conn net.Conn)) string {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				end := func() { _ = conn.Close() }
				defer end()
				defer context.AfterFunc(t.Context(), end)()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	return listener.Addr().String()
}
