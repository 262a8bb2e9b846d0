package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/certificate"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
)

// StartKafka starts so many brokers of Apache Kafka, each of them a controller,
// too, with the settings (key=value). Topics have a replica on each, and more than half
// must be in sync for a write. Addr is a broker's. A JVM has the options of Kafka's own
// kafka-server-start.sh: the tests' JVM starts fast and stays slow. With several
// brokers each has half of the memory.
func StartKafka(ctx context.Context, size int, settings ...string) (*Broker, error) {
	return startKafka(ctx, size, nil, settings...)
}

// startKafka is StartKafka or, with a delay and a single broker, StartFar.
func startKafka(ctx context.Context, size int, delay *time.Duration, settings ...string) (*Broker, error) {
	script, err := child.Script("kafka.sh")
	if err != nil {
		return nil, err
	}
	jars, err := child.Output(ctx, "", script, "fetch")
	if err != nil {
		return nil, err
	}
	heap := "-Xms1g -Xmx1g "
	if size > 1 {
		heap = "-Xms512m -Xmx512m "
	}
	nodes := make([]node, size)
	for n := range nodes {
		if nodes[n], err = newNode(); err != nil {
			return nil, err
		}
	}
	b := &Broker{
		Addr: nodes[0].plain, TLSAddr: nodes[0].tls, Name: "Apache Kafka", replicas: int16(size), brokers: size,
		Version: strings.TrimSpace(jars[strings.LastIndex(jars, "-")+1:]),
	}
	if delay != nil {
		if err := b.goFar(ctx, *delay); err != nil {
			return nil, err
		}
	}
	if b.dir, err = os.MkdirTemp("", "cdc-outbox-bench-"); err != nil {
		return nil, err
	}
	identity, err := b.certify()
	if err != nil {
		b.Stop()
		return nil, err
	}
	for n, at := range nodes {
		clients := at.plain
		if size == 1 {
			clients = b.Addr
		}
		dir := filepath.Join(b.dir, strconv.Itoa(n))
		cmd := exec.Command(script, slices.Concat([]string{"run", dir, portOf(at.plain), portOf(at.controller)},
			at.settings(clients, identity), clusterSettings(n, nodes), settings)...)
		cmd.Env = append(os.Environ(), "KAFKA_JVM="+heap+JVMOptions)
		p, failed := Start("broker", cmd)
		if failed != nil {
			b.Stop()
			return nil, failed
		}
		b.process, b.others = p, append(b.others, p)
	}
	if err := b.process.Explain(b.connect(ctx)); err != nil {
		b.Stop()
		return nil, errors.Join(errors.New("start Apache Kafka"), err)
	}
	return b, nil
}

// node is a broker's addresses.
type node struct{ plain, tls, controller string }

func newNode() (n node, err error) {
	for _, addr := range []*string{&n.plain, &n.tls, &n.controller} {
		if *addr, err = freeport.TakeAddress(); err != nil {
			return n, err
		}
	}
	return n, nil
}

func portOf(addr string) string { return addr[strings.LastIndex(addr, ":")+1:] }

// settings are the listeners: clients without TLS are sent to the address, those with
// TLS get the identity, a PEM file.
func (n node) settings(clients, identity string) []string {
	return []string{
		"listeners=PLAINTEXT://" + n.plain + ",TLS://" + n.tls + ",CONTROLLER://" + n.controller,
		"advertised.listeners=PLAINTEXT://" + clients + ",TLS://" + n.tls,
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,TLS:SSL,CONTROLLER:PLAINTEXT",
		"listener.name.tls.ssl.keystore.type=PEM",
		"listener.name.tls.ssl.keystore.location=" + identity,
	}
}

// certify writes the brokers' certificate, and returns the file of certificate and key.
func (b *Broker) certify() (identity string, err error) {
	public, key, err := certificate.SelfSigned()
	if err != nil {
		return "", err
	}
	b.CA, identity = filepath.Join(b.dir, "ca.pem"), filepath.Join(b.dir, "identity.pem")
	return identity, errors.Join(os.WriteFile(b.CA, public, 0o600), os.WriteFile(identity, slices.Concat(key, public), 0o600))
}

func clusterSettings(n int, nodes []node) []string {
	size, voters := len(nodes), make([]string, len(nodes))
	for v, at := range nodes {
		voters[v] = fmt.Sprintf("%d@%s", v, at.controller)
	}
	inSync := size/2 + 1
	return []string{
		fmt.Sprintf("node.id=%d", n),
		"controller.quorum.voters=" + strings.Join(voters, ","),
		fmt.Sprintf("default.replication.factor=%d", size),
		fmt.Sprintf("min.insync.replicas=%d", inSync),
		fmt.Sprintf("transaction.state.log.replication.factor=%d", size),
		fmt.Sprintf("transaction.state.log.min.isr=%d", inSync),
	}
}
