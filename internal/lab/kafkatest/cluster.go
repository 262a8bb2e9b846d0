package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/container"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// Cluster is several brokers of Apache Kafka, each of them a controller, too.
// Topics have a replica on each, and two must be in sync for a write. The brokers
// are numbered from 0.
type Cluster struct {
	*Broker
	// Fronts are listeners beside Brokers, to be hidden by proxies: each
	// advertises its address from StartCluster's arguments.
	Fronts []string
	// Ways are more such listeners, by broker, in the order of the option Ways.
	Ways [][]string

	nodes   []*apache
	inner   []*proxy.Proxy // between the others and each broker
	control *proxy.Proxy   // between the others and the controller; nil if each is a controller
}

// OneController makes the first broker of a cluster the only controller, so
// Isolate can cut the others off from the controller.
func OneController() Option { return func(o *options) { o.oneController = true } }

// Ways gives each broker of a cluster more listeners like the front: advertised has their
// addresses, by broker. So each client may have separate ways to the brokers.
func Ways(advertised [][]string) Option { return func(o *options) { o.ways = advertised } }

// StartCluster starts a cluster ending with the test, a broker for each advertised
// address. The brokers are processes of this machine, also where other servers are
// in containers: proxies stand between them. Where Apache Kafka does not run, the
// test is skipped.
func StartCluster(t testing.TB, advertised []string, opts ...Option) *Cluster {
	t.Helper()
	if contained, err := container.Chosen(""); !apacheRuns() && (contained || !Real()) {
		testserver.Absent(t, "Apache Kafka cluster", errors.Join(errNoApache, err))
	}
	tell(false)
	o := options{settings: map[string]string{}}
	for _, opt := range opts {
		opt(&o)
	}
	c := &Cluster{Broker: &Broker{replicas: int16(len(advertised))}}
	var voters []string
	for n := range advertised {
		a := must.Get(newApache(t))(t)
		front, inner := must.Get(freeport.Take())(t), must.Get(freeport.Take())(t)
		between := must.Get(proxy.Listen("127.0.0.1:0", local(inner)))(t)
		t.Cleanup(func() { _ = between.Close() })
		c.inner = append(c.inner, between)
		listeners := fmt.Sprintf("PLAINTEXT://%s,FRONT://%s,INNER://%s", a.Addr(), local(front), local(inner))
		addresses := fmt.Sprintf("PLAINTEXT://%s,FRONT://%s,INNER://%s", a.Addr(), advertised[n], between.Addr())
		c.Ways = append(c.Ways, nil)
		for way, address := range o.waysTo(n) {
			to := local(must.Get(freeport.Take())(t))
			listeners += fmt.Sprintf(",%s://%s", wayName(way), to)
			addresses += fmt.Sprintf(",%s://%s", wayName(way), address)
			c.Ways[n] = append(c.Ways[n], to)
		}
		if n == 0 || !o.oneController {
			listeners += ",CONTROLLER://" + local(a.controller)
			voters = append(voters, fmt.Sprintf("%d@%s", n, local(a.controller)))
		}
		if n == 0 && o.oneController {
			c.control = must.Get(proxy.Listen("127.0.0.1:0", local(a.controller)))(t)
			t.Cleanup(func() { _ = c.control.Close() })
			addresses += ",CONTROLLER://" + c.control.Addr()
		}
		a.settings = append(a.settings, "listeners="+listeners, "advertised.listeners="+addresses)
		c.nodes = append(c.nodes, a)
		c.Brokers = append(c.Brokers, a.Addr())
		c.Fronts = append(c.Fronts, local(front))
	}
	for n, a := range c.nodes {
		a.settings = append(a.settings, clusterSettings(n, len(c.nodes), voters, &o)...)
		if n > 0 && o.oneController {
			a.settings = append(a.settings, "process.roles=broker", "controller.quorum.voters=0@"+c.control.Addr())
		}
		testserver.Start(t, "Kafka", nil, func(ctx context.Context) (server, error) { return a, a.Resume(ctx) })
		c.all = append(c.all, a)
	}
	testserver.DoStart(t, "start the cluster", c.gather)
	return c
}

// gathering is how long the brokers have to come together before they are
// started again, at first. Each time they have twice as long, as a start again throws
// away a busy machine's work.
const gathering = 40 * time.Second

// endings is how often brokers may end by themselves before a cluster counts as unable
// to start.
const endings = 3

// gather returns once all brokers are in the cluster. On a busy machine a starting
// broker may end, or miss the others: all are started again.
func (c *Cluster) gather(ctx context.Context) error {
	ended := 0
	for patience := gathering; ; patience *= 2 {
		some, cancel := context.WithTimeout(ctx, patience)
		err := c.awaitReady(some)
		cancel()
		if errors.Is(err, await.ErrExited) {
			ended++
		}
		if err == nil || ctx.Err() != nil || ended == endings {
			return err
		}
		for _, a := range c.nodes {
			if err := errors.Join(a.Stop(ctx, syscall.SIGKILL), a.Resume(ctx)); err != nil {
				return err
			}
		}
	}
}

// waysTo are the advertised addresses of broker n's further listeners.
func (o *options) waysTo(n int) []string {
	if o.ways == nil {
		return nil
	}
	return o.ways[n]
}

// wayName names a listener to brokers.
func wayName(way int) string { return fmt.Sprint("WAY", way) }

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func clusterSettings(n, size int, voters []string, o *options) []string {
	inSync := (size + 1) / 2
	protocols := "PLAINTEXT:PLAINTEXT,FRONT:PLAINTEXT,INNER:PLAINTEXT,CONTROLLER:PLAINTEXT"
	for way := range o.waysTo(n) {
		protocols += "," + wayName(way) + ":PLAINTEXT"
	}
	all := []string{
		fmt.Sprintf("node.id=%d", n),
		"controller.quorum.voters=" + strings.Join(voters, ","),
		"listener.security.protocol.map=" + protocols,
		"inter.broker.listener.name=INNER",
		fmt.Sprintf("offsets.topic.replication.factor=%d", size),
		fmt.Sprintf("default.replication.factor=%d", size),
		fmt.Sprintf("min.insync.replicas=%d", inSync),
		fmt.Sprintf("transaction.state.log.replication.factor=%d", size),
		fmt.Sprintf("transaction.state.log.min.isr=%d", inSync),
		"replica.lag.time.max.ms=3000",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
	}
	for name, value := range o.settings {
		all = append(all, name+"="+value)
	}
	return all
}

// KillNode ends a broker with kill -9.
func (c *Cluster) KillNode(t testing.TB, n int) {
	t.Helper()
	testserver.Do(t, "kill a broker", func(ctx context.Context) error { return c.nodes[n].Stop(ctx, syscall.SIGKILL) })
}

// ResumeNode starts a killed broker again, without a wait.
func (c *Cluster) ResumeNode(t testing.TB, n int) {
	t.Helper()
	testserver.Do(t, "start a broker again", c.nodes[n].Resume)
}

// PauseNode suspends or resumes a broker.
func (c *Cluster) PauseNode(t testing.TB, n int, pause bool) {
	t.Helper()
	do := c.nodes[n].Continue
	if pause {
		do = c.nodes[n].Pause
	}
	must.OK(t, do())
}

// Part keeps all brokers from reaching broker n, or ends that. Clients and the
// controller still reach broker n, and broker n the others.
func (c *Cluster) Part(n int, part bool) {
	c.inner[n].Refuse(part)
	c.inner[n].Cut()
}

// Isolate cuts the brokers off from each other and from the only controller. Clients
// reach all of them. So the first broker leads all partitions after a while, and the
// others go on as if they still led theirs.
func (c *Cluster) Isolate() {
	c.control.Refuse(true)
	c.control.Cut()
	for n := range c.nodes {
		c.Part(n, true)
	}
}

// AwaitInSync returns once every partition of the topics has all of its
// replicas in sync.
func (c *Cluster) AwaitInSync(t testing.TB, topics ...string) {
	t.Helper()
	client := c.Client(t)
	defer client.Close()
	testserver.Do(t, "replicate what was missed", func(ctx context.Context) error {
		return await.Ready(ctx, nil, func(ctx context.Context) error {
			details, err := kadm.NewClient(client).ListTopics(ctx, topics...)
			for _, topic := range details {
				for _, p := range topic.Partitions {
					if err == nil && len(p.ISR) < len(p.Replicas) {
						err = fmt.Errorf("partition %d of %s has %d of %d replicas in sync", p.Partition, topic.Topic, len(p.ISR), len(p.Replicas))
					}
				}
			}
			return err
		})
	})
}

// Leader is the broker leading a partition of the topic.
func (c *Cluster) Leader(t testing.TB, topic string, partition int32) (node int) {
	t.Helper()
	client := c.Client(t)
	defer client.Close()
	testserver.Do(t, "find the leader of "+topic, func(ctx context.Context) error {
		topics, err := kadm.NewClient(client).ListTopics(ctx, topic)
		if err == nil {
			node = int(topics[topic].Partitions[partition].Leader)
		}
		return err
	})
	return node
}

// MoveLeader makes another broker the leader of a partition of the topic, with
// a replica on each.
func (c *Cluster) MoveLeader(t testing.TB, topic string, partition int32) {
	t.Helper()
	leader := c.Leader(t, topic, partition)
	var order kadm.AlterPartitionAssignmentsReq
	var replicas []int32
	for n := range c.nodes {
		replicas = append(replicas, int32((leader+1+n)%len(c.nodes)))
	}
	order.Assign(topic, partition, replicas)
	var which kadm.TopicsSet
	which.Add(topic, partition)
	client := c.Client(t)
	defer client.Close()
	admin := kadm.NewClient(client)
	testserver.Do(t, "move the leader of "+topic, func(ctx context.Context) error {
		ordered, err := admin.AlterPartitionAssignments(ctx, order)
		if err := errors.Join(err, ordered.Error()); err != nil {
			return err
		}
		return await.Ready(ctx, nil, func(ctx context.Context) error {
			elected, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, which)
			if err == nil {
				err = elected[topic][partition].Err
			}
			if errors.Is(err, kerr.ElectionNotNeeded) {
				return nil
			}
			return err
		})
	})
}

// Coordinator is the transaction coordinator of the id, or -1 while there is none.
func (c *Cluster) Coordinator(t testing.TB, id string) (node int) {
	t.Helper()
	client := c.Client(t)
	defer client.Close()
	testserver.Do(t, "find the coordinator of "+id, func(ctx context.Context) error {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorType, req.CoordinatorKeys, req.CoordinatorKey = 1, []string{id}, id
		resp, err := req.RequestWith(ctx, client)
		if err != nil {
			return err
		}
		node = int(resp.NodeID)
		if len(resp.Coordinators) > 0 {
			node = int(resp.Coordinators[0].NodeID)
		}
		return nil
	})
	return node
}
