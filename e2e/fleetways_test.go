package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// fleetWays lead each process of a fleet through proxies to the servers, separate for each, although
// all processes have the same file: another address would be another specification.
//
// The file names PostgreSQL without a port, and the environment has the port. The brokers in the
// file are seeds: a seed finds the process at the other end of a connection, and connects the process
// to the broker by the process's way. From there the broker sends the client to addresses of the
// same way, by a listener for each.
type fleetWays struct {
	cluster *kafkatest.Cluster
	seeds   []*proxy.Proxy // by broker
	others  *fleetWay      // of all processes without a way of their own
	free    []*fleetWay

	mu      sync.Mutex
	ids     map[int]*fleetWay    // by process
	sockets map[string]string    // by the addresses of both ends
	owners  map[string]*fleetWay // by socket
}

// fleetWay is a process's way.
type fleetWay struct {
	kafka    []*proxy.Proxy // by broker
	postgres *proxy.Proxy
}

// newFleetWays starts a cluster with so many brokers, and makes so many ways there and to the
// PostgreSQL server at the host.
func newFleetWays(t testing.TB, host string, processes, brokers int) *fleetWays {
	t.Helper()
	if runtime.GOOS != "linux" {
		testserver.Absent(t, "ways of processes", errors.New("the owner of a connection is found on Linux alone"))
	}
	var fronts []string
	further := make([][]string, brokers)
	for n := range brokers {
		fronts = append(fronts, must.Get(freeport.TakeAddress())(t))
		for range processes {
			further[n] = append(further[n], must.Get(freeport.TakeAddress())(t))
		}
	}
	// With Kafka's own default, members that start together share out all pipelines at once.
	together := kafkatest.Setting("group.initial.rebalance.delay.ms", "3000")
	w := &fleetWays{cluster: kafkatest.StartCluster(t, fronts, kafkatest.Ways(further), together), others: &fleetWay{}, ids: map[int]*fleetWay{}}
	for p := range processes {
		way := &fleetWay{postgres: listen(t, "127.0.0.1:0", host)}
		for n := range brokers {
			way.kafka = append(way.kafka, listen(t, further[n][p], w.cluster.Ways[n][p]))
		}
		w.free = append(w.free, way)
	}
	for n := range brokers {
		w.others.kafka = append(w.others.kafka, listen(t, fronts[n], w.cluster.Fronts[n]))
		seed := must.Get(proxy.Route("127.0.0.1:0", func(client net.Conn) (string, error) { return w.of(client).kafka[n].Addr(), nil }))(t)
		t.Cleanup(func() {
			if err := seed.Close(); err != nil {
				t.Error(err)
			}
		})
		w.seeds = append(w.seeds, seed)
	}
	return w
}

// addresses are the brokers of the file.
func (w *fleetWays) addresses() string {
	var all []string
	for _, seed := range w.seeds {
		all = append(all, seed.Addr())
	}
	return strings.Join(all, ", ")
}

// take gives a way to the process.
func (w *fleetWays) take(id int, way *fleetWay) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids[id] = way
}

// of is the way of the process at the other end of a connection. A look at the kernel's
// tables serves all connections made before: they are long on a busy machine.
func (w *fleetWays) of(client net.Conn) *fleetWay {
	w.mu.Lock()
	defer w.mu.Unlock()
	ends := inTable(client.RemoteAddr()) + inTable(client.LocalAddr())
	if w.sockets[ends] == "" {
		w.look()
	}
	way := w.owners[w.sockets[ends]]
	delete(w.sockets, ends) // the ports may be another connection's later
	if way == nil {
		return w.others
	}
	return way
}

// look finds all sockets of the machine, and the sockets of the processes. See proc_net_tcp(5), and
// proc_pid_fd(5). The caller holds mu.
func (w *fleetWays) look() {
	w.sockets, w.owners = map[string]string{}, map[string]*fleetWay{}
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return // all are others
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 9 {
			w.sockets[f[1]+f[2]] = "socket:[" + f[9] + "]"
		}
	}
	for id, way := range w.ids {
		dir := fmt.Sprintf("/proc/%d/fd", id)
		entries, err := os.ReadDir(dir)
		if err != nil {
			delete(w.ids, id) // has ended
		}
		for _, e := range entries {
			if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
				w.owners[to] = way
			}
		}
	}
}

// inTable is an address of IPv4 in the kernel's table.
func inTable(address net.Addr) string {
	at := address.(*net.TCPAddr).AddrPort()
	ip := at.Addr().Unmap().As4()
	return fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], at.Port())
}

// refuse closes all connections through the proxies, and refuses new ones, until refuse(false).
func refuse(through []*proxy.Proxy, is bool) {
	for _, p := range through {
		p.Refuse(is)
		if is {
			p.Cut()
		}
	}
}

// silence lets nothing through the proxies until silence(false). Then the connections end: TCP passes
// nothing on behind a gap.
func silence(through []*proxy.Proxy, is bool) {
	for _, p := range through {
		p.Set(proxy.Up, proxy.Fault{Swallow: is})
		p.Set(proxy.Down, proxy.Fault{Swallow: is})
		if !is {
			p.Cut()
		}
	}
}
