package redistest

import (
	"context"
	"maps"
	"net"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/internal/container"
	"github.com/cdc-outbox/cdc-outbox/internal/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/redisserver"
)

// redisImage is the image of the server in a container.
const redisImage = "redis:7.4-bookworm"

const redisPort = 6379

// contained is a server in a container.
type contained struct {
	port      int
	container *container.Container
	stopped   bool
}

func startContainer(ctx context.Context, o redisserver.Options) (server, error) {
	port, err := freeport.Take()
	if err != nil {
		return nil, err
	}
	all := o.AllSettings()
	all["protected-mode"] = "no" // the host's connections are not from loopback in there
	command := []string{"redis-server"}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		command = append(command, "--"+name, all[name])
	}
	c := &contained{port: port}
	c.container, err = container.Run(ctx, container.Spec{
		Image: redisImage, Port: redisPort, HostPort: port, Command: command,
	})
	if err != nil {
		return nil, err
	}
	return c, c.awaitReady(ctx)
}

// Addr implements server.
func (c *contained) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)) }

// Stop implements server.
func (c *contained) Stop(ctx context.Context, sig syscall.Signal) error {
	if c.stopped {
		return nil
	}
	name := "TERM"
	if sig == syscall.SIGKILL {
		name = "KILL"
	}
	err := c.container.Stop(ctx, name)
	c.stopped = err == nil
	return err
}

// Resume implements server.
func (c *contained) Resume(ctx context.Context) error {
	if err := c.container.Start(ctx); err != nil {
		return err
	}
	c.stopped = false
	return c.awaitReady(ctx)
}

// Close implements server.
func (c *contained) Close() error { return c.container.Close() }

// awaitReady returns once the server answers.
func (c *contained) awaitReady(ctx context.Context) error {
	client := redis.NewClient(&redis.Options{Addr: c.Addr()})
	defer client.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := client.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}
