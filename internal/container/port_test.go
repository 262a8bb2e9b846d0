package container_test

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/container"
)

// No connection takes the port while its server is not there.
func TestFreePortsAreNotThoseOfConnections(t *testing.T) {
	const firstOfConnections = 32768
	for range 100 {
		if port, err := container.FreePort(); err != nil || port < 1024 || port >= firstOfConnections {
			t.Fatalf("port %d, %v", port, err)
		}
	}
}
