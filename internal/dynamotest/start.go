package dynamotest

import (
	"context"
	"errors"
	"net"
	"strconv"

	"github.com/cdc-outbox/cdc-outbox/internal/container"
	"github.com/cdc-outbox/cdc-outbox/internal/dynamoserver"
	"github.com/cdc-outbox/cdc-outbox/internal/freeport"
)

// image is Amazon's own; the version is that of scripts/dynamodb.sh.
const (
	image     = "amazon/dynamodb-local:2.6.1"
	imagePort = 8000
)

// running is a server in whatever form.
type running struct {
	address string
	close   func() error
}

// start starts a server and waits until it answers.
func start() (*running, error) {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	if container.Answers() {
		return startContainer(ctx)
	}
	server, err := dynamoserver.Start(ctx)
	if err != nil {
		return nil, err
	}
	return &running{address: server.Addr(), close: server.Close}, nil
}

func startContainer(ctx context.Context) (*running, error) {
	port, err := freeport.Take()
	if err != nil {
		return nil, err
	}
	c, err := container.Run(ctx, container.Spec{Image: image, Port: imagePort, HostPort: port})
	if err != nil {
		return nil, err
	}
	r := &running{address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), close: c.Close}
	if err := dynamoserver.Await(ctx, r.address, nil); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}
