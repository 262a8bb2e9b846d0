package redistest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redisserver"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// masters is the least number of masters that Redis Cluster is made for.
const masters = 3

// slots is the number of hash slots (Redis Cluster specification).
const slots = 16384

// Replica starts a replica of the server and waits until it has a copy.
func Replica(t testing.TB, master Beside, opts ...Option) *Server {
	t.Helper()
	// The master would wait for more replicas before it sends the data.
	do(t, master.Client(t), "CONFIG", "SET", "repl-diskless-sync-delay", 0)
	host, port, _ := net.SplitHostPort(master.Addr())
	replica := StartBeside(t, append(opts, Setting("replicaof", host+" "+port))...).Server
	replica.Await(t, "replication", "master_link_status:up")
	_, port, _ = net.SplitHostPort(replica.Addr())
	master.Await(t, "replication", "port="+port+",state=online") // from here on WAIT counts it
	return replica
}

// Await waits until a section of INFO has the line.
func (s *Server) Await(t testing.TB, section, line string) {
	t.Helper()
	client := s.Client(t)
	eventually(t, "wait for INFO "+section, func(ctx context.Context) error {
		info, err := client.Info(ctx, section).Result()
		if err == nil && !strings.Contains(info, line) {
			err = fmt.Errorf("no %s in INFO %s:\n%s", line, section, info)
		}
		return err
	})
}

// SentinelMaster is the name under which a Sentinel knows the master.
const SentinelMaster = "keys"

// Sentinel starts a Sentinel that alone decides about failovers of the master:
// within a second after it is gone. Sentinel waits until the Sentinel knows so
// many replicas.
func Sentinel(t testing.TB, master Beside, replicas int) *Server {
	t.Helper()
	host, port, _ := net.SplitHostPort(master.Addr())
	s := StartBeside(t, func(o *redisserver.Options) {
		o.Sentinel = []string{
			fmt.Sprintf("monitor %s %s %s 1", SentinelMaster, host, port),
			"down-after-milliseconds " + SentinelMaster + " 500",
			"failover-timeout " + SentinelMaster + " 5000",
		}
	}).Server
	client := redis.NewSentinelClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	eventually(t, "wait for the Sentinel's replicas", func(ctx context.Context) error {
		known, err := client.Replicas(ctx, SentinelMaster).Result()
		if err == nil && len(known) < replicas {
			err = fmt.Errorf("the Sentinel knows %d replicas", len(known))
		}
		return err
	})
	return s
}

// Master is the master among the servers, as a Sentinel says.
func (s *Server) Master(t testing.TB, servers []*Server) *Server {
	t.Helper()
	client := redis.NewSentinelClient(&redis.Options{Addr: s.Addr()})
	defer client.Close()
	var at []string
	testserver.Do(t, "ask the Sentinel for the master", func(ctx context.Context) (err error) {
		at, err = client.GetMasterAddrByName(ctx, SentinelMaster).Result()
		return err
	})
	i := slices.IndexFunc(servers, func(o *Server) bool { return o.Addr() == net.JoinHostPort(at[0], at[1]) })
	if i < 0 {
		t.Fatalf("the Sentinel names another server: %v", at)
	}
	return servers[i]
}

// Follow makes the server a replica of another.
func (s *Server) Follow(t testing.TB, master *Server) {
	t.Helper()
	host, port, _ := net.SplitHostPort(master.Addr())
	do(t, s.Client(t), "REPLICAOF", host, port)
}

// Cluster is a Redis Cluster of three masters without replicas.
type Cluster struct{ Nodes []*Server }

// StartNode starts a node that is in no cluster yet and has no slots. bus is
// its cluster port.
func StartNode(t testing.TB) (node *Server, bus int) {
	t.Helper()
	bus, err := freeport.Take()
	if err != nil {
		t.Fatal(err)
	}
	return StartBeside(t, Setting("cluster-enabled", "yes"), Setting("cluster-port", strconv.Itoa(bus))).Server, bus
}

// StartCluster starts a cluster removed when the test ends.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{}
	bus := make([]int, masters)
	for i := range masters {
		node, port := StartNode(t)
		bus[i] = port
		c.Nodes = append(c.Nodes, node)
	}
	for i, node := range c.Nodes {
		client := node.Client(t)
		do(t, client, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		do(t, client, "CLUSTER", "ADDSLOTSRANGE", i*slots/masters, (i+1)*slots/masters-1)
	}
	first := c.Nodes[0].Client(t)
	for i, node := range c.Nodes[1:] {
		host, port, _ := net.SplitHostPort(node.Addr())
		do(t, first, "CLUSTER", "MEET", host, port, bus[i+1])
	}
	for _, node := range c.Nodes {
		client := node.Client(t)
		eventually(t, "wait for the cluster", func(ctx context.Context) error {
			info, err := client.ClusterInfo(ctx).Result()
			if err == nil && !strings.Contains(info, "cluster_state:ok") {
				err = fmt.Errorf("cluster is not ready:\n%s", info)
			}
			return err
		})
	}
	return c
}

// Client returns a client of the cluster, closed when the test ends, and as
// patient as Server.Client's. Options other than the addresses may be changed first.
func (c *Cluster) Client(t testing.TB, change ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	t.Helper()
	o := &redis.ClusterOptions{
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience,
		ContextTimeoutEnabled: true,
	}
	for _, node := range c.Nodes {
		o.Addrs = append(o.Addrs, node.Addr())
	}
	for _, f := range change {
		f(o)
	}
	client := redis.NewClusterClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func do(t testing.TB, client *redis.Client, args ...any) {
	t.Helper()
	testserver.Do(t, fmt.Sprint(args...), func(ctx context.Context) error { return client.Do(ctx, args...).Err() })
}

// eventually repeats the attempt until it succeeds.
func eventually(t testing.TB, what string, attempt func(context.Context) error) {
	t.Helper()
	testserver.Do(t, what, func(ctx context.Context) error { return await.Ready(ctx, nil, attempt) })
}
