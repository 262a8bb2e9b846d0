package kafkatest

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// Silent is an address, until the test ends, taking connections and never answering.
// asked is closed when the first byte of a request has arrived.
func Silent(t testing.TB) (addr string, asked <-chan struct{}) {
	t.Helper()
	heard := make(chan struct{})
	hear := sync.OnceFunc(func() { close(heard) })
	addr = testserver.Serve(t, func(conn net.Conn) {
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			hear()
			_, _ = io.Copy(io.Discard, conn)
		}
	})
	return addr, heard
}
