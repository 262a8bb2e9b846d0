package kafkatest

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// Silent is the address of what takes connections and never answers. asked is
// closed when the first byte of a request has arrived. It ends with the test.
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
