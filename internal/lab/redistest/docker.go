package redistest

import (
	"context"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/container"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redisserver"
)

// redisImage is the image of the server in a container.
const redisImage = "redis:7.4-bookworm"

func startContainer(ctx context.Context, o redisserver.Options) (server, error) {
	all := o.AllSettings()
	all["protected-mode"] = "no" // the host's connections are not from loopback in there
	command := []string{"redis-server"}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		command = append(command, "--"+name, all[name])
	}
	return container.Run(ctx, container.Spec{Image: redisImage, Port: 6379, Command: command, Probe: ping})
}

// ping tells whether the server answers.
func ping(ctx context.Context, addr string) error {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	return client.Ping(ctx).Err()
}
