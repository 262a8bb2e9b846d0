package sink

import (
	"context"
	"net"
	"testing"
)

// While the gate is closed nothing is written, and what was tried is written
// when it opens.
func TestMode30GateHoldsWrites(t *testing.T) {
	client, broker := net.Pipe()
	defer client.Close()
	defer broker.Close()
	g := new(writeBarrier)
	conn, err := g.dialer(func(context.Context, string, string) (net.Conn, error) { return client, nil })(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	g.close()
	open := false
	wrote := make(chan error, 1)
	go func() {
		_, err := conn.Write([]byte("x"))
		wrote <- err
	}()
	read := make(chan bool, 1)
	go func() {
		_, _ = broker.Read(make([]byte, 1))
		read <- open // a race unless the gate orders it
	}()
	open = true
	g.open()
	if !<-read {
		t.Error("written through a closed gate")
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}
