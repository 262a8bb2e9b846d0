package kafkatest

import (
	"net"
	"sync"
	"testing"
)

// Silent is the address of what takes connections and never answers. asked is
// closed when the first byte of a request has arrived. It ends with the test.
func Silent(t testing.TB) (addr string, asked <-chan struct{}) {
	t.Helper()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
