package container

import (
	"context"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/network"
)

// Network is a network of containers, where each has a name. There the loopback
// address is the container's own, and no other is published.
type Network struct{ inner *testcontainers.DockerNetwork }

// NewNetwork creates a network. The network can be closed once the containers
// are.
func NewNetwork(ctx context.Context) (*Network, error) {
	inner, err := network.New(ctx)
	if err != nil {
		return nil, err
	}
	return &Network{inner}, nil
}

// Close removes the network.
func (n *Network) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return n.inner.Remove(ctx)
}

// join has a container in the network under a name; without a network it does nothing.
func (n *Network) join(name string) testcontainers.CustomizeRequestOption {
	if n == nil {
		return func(*testcontainers.GenericContainerRequest) error { return nil }
	}
	return network.WithNetwork([]string{name}, n.inner)
}
