package freeport

import (
	"net"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPortsAreNotThoseOfConnections(t *testing.T) {
	const firstOfConnections = 32768
	for range 100 {
		if port, err := Take(); err != nil || port < 1024 || port >= firstOfConnections {
			t.Fatalf("port %d, %v", port, err)
		}
	}
}

// The mark is the system's: what this process cannot have twice, another cannot
// have either.
func TestPortIsTakenOnce(t *testing.T) {
	port, err := Take()
	if err != nil {
		t.Fatal(err)
	}
	if mark, err := take(port); err == nil {
		_ = mark.Close()
		t.Error("it can be had twice")
	}
}

func TestPortWithAServerIsNotFree(t *testing.T) {
	port, err := Take()
	if err != nil {
		t.Fatal(err)
	}
	server, err := net.Listen("tcp", loopback(port))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	held.marks[len(held.marks)-1].Close() // as if the owner had not asked here
	if mark, err := take(port); err == nil {
		_ = mark.Close()
		t.Error("a port that a server listens on is free")
	}
}
