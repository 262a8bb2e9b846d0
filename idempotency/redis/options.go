package redis

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/usercode"
)

// The defaults of Options.
const (
	defaultPrefix         = "idempotency"
	defaultMaxResultBytes = 1 << 20
	defaultWaitTimeout    = time.Second
)

// Options are all optional.
type Options struct {
	// Prefix begins the server's keys, "prefix:{scope/id}"; "idempotency" if
	// empty. Prefix must not contain braces.
	Prefix string
	// MaxResultBytes bounds a result; 1 MiB if 0. Results are the server's memory
	// for the retention, and Redis, with a single thread, serves nobody else while
	// reading a result.
	MaxResultBytes int
	// WaitReplicas makes a granted Claim and a Complete wait until so many
	// replicas have the write, too (WAIT), and fail with errTooFewReplicas after
	// WaitTimeout. 0, the default, does not wait.
	//
	// WaitReplicas narrows, and does not close, the gap of a failover: Redis may
	// promote another replica, and a failed write is not taken back. In a cluster,
	// keys of a hash slot on the move to another node are refused until the move is
	// over.
	WaitReplicas int
	// WaitTimeout is a second if 0. WaitTimeout must be shorter than the client's
	// ReadTimeout, and at least 1 ms.
	WaitTimeout time.Duration
}

// withDefaults returns the options with the defaults filled in, or why they
// cannot be used with the client.
func (o Options) withDefaults(client goredis.UniversalClient) (Options, error) {
	o.Prefix = cmp.Or(o.Prefix, defaultPrefix)
	o.MaxResultBytes = cmp.Or(o.MaxResultBytes, defaultMaxResultBytes)
	o.WaitTimeout = cmp.Or(o.WaitTimeout, defaultWaitTimeout)
	switch {
	case strings.ContainsAny(o.Prefix, "{}"):
		return o, fmt.Errorf("option Prefix %q contains braces, which Redis Cluster takes for a hash tag", o.Prefix)
	case o.MaxResultBytes < 0:
		return o, fmt.Errorf("option MaxResultBytes, %d, is negative", o.MaxResultBytes)
	case o.WaitReplicas < 0:
		return o, fmt.Errorf("option WaitReplicas, %d, is negative", o.WaitReplicas)
	case o.WaitTimeout < time.Millisecond: // WAIT takes 0 for ever
		return o, fmt.Errorf("option WaitTimeout, %s, is shorter than 1ms", o.WaitTimeout)
	}
	var readTimeout time.Duration
	if usercode.IsNil(client) {
		return o, errors.New("a Redis client is required")
	}
	switch c := client.(type) {
	case *goredis.Ring:
		return o, errors.New("a redis.Ring moves keys to another server when one is down, where they are unknown: " +
			"use Redis Cluster, Sentinel or one server")
	case *goredis.Client:
		readTimeout = c.Options().ReadTimeout
	case *goredis.ClusterClient:
		readTimeout = c.Options().ReadTimeout
	}
	if o.WaitReplicas > 0 && readTimeout > 0 && o.WaitTimeout >= readTimeout {
		return o, fmt.Errorf("option WaitTimeout, %s, is not shorter than the client's ReadTimeout, %s", o.WaitTimeout, readTimeout)
	}
	return o, nil
}
