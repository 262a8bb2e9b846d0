package freeport

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// childEnv makes the test binary a program that tries to take the port of that
// number, says whether it got it, and ends.
const childEnv = "CDC_OUTBOX_TEST_PORT"

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		port, err := strconv.Atoi(text)
		if err == nil {
			_, err = take(port)
		}
		_, _ = fmt.Fprintln(os.Stdout, err == nil)
		return
	}
	goleak.VerifyTestMain(m)
}

func TestPortsAreNotThoseOfConnections(t *testing.T) {
	const firstOfConnections = 32768
	for range 100 {
		if port, err := Take(); err != nil || port < 1024 || port >= firstOfConnections {
			t.Fatalf("port %d, %v", port, err)
		}
	}
}

func TestPortIsTakenOnce(t *testing.T) {
	port, err := Take()
	if err != nil {
		t.Fatal(err)
	}
	if mark, err := take(port); err == nil {
		_ = mark.Close()
		t.Error("this process has it twice")
	}
	if gotBy(t, port) {
		t.Error("another process has it too")
	}
}

// gotBy tells whether another process can take the port.
func gotBy(t *testing.T, port int) bool {
	t.Helper()
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), fmt.Sprintf("%s=%d", childEnv, port))
	out, err := other.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out) == "true\n"
}

func TestPortWithAServerIsNotFree(t *testing.T) {
	address, err := TakeAddress()
	if err != nil {
		t.Fatal(err)
	}
	server, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	held.marks[len(held.marks)-1].Close() // as if its owner had not asked here
	if mark, err := take(port); err == nil {
		_ = mark.Close()
		t.Error("a port that a server listens on is free")
	}
}
