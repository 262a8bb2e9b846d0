package kafkatest

import (
	"net"
	"sync"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/must"
)

// Silent is the address of what takes connections and never answers. asked is
// closed when the first byte of a request has arrived. It ends with the test.
func Silent(t testing.TB) (addr string, asked <-chan struct{}) {
	t.Helper()
	silent := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	heard := make(chan struct{})
	var accepting sync.WaitGroup
	accepting.Go(func() {
		var once sync.Once
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				once.Do(func() { close(heard) })
			}
		}
	})
	t.Cleanup(func() {
		_ = silent.Close()
		accepting.Wait()
	})
	return silent.Addr().String(), heard
}
