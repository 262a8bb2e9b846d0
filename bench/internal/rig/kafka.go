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
	ports := make([]int, 2*size)
	var voters []string
	for n := range ports {
		if ports[n], err = freeport.Take(); err != nil {
			return nil, err
		}
		if n%2 == 1 {
			voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", n/2, ports[n]))
		}
	}
	b := &Broker{
		Addr: "127.0.0.1:" + strconv.Itoa(ports[0]), Name: "Apache Kafka", replicas: int16(size), brokers: size,
		Version: strings.TrimSpace(jars[strings.LastIndex(jars, "-")+1:]),
	}
	if delay != nil {
		if err := b.goFar(ctx, *delay); err != nil {
			return nil, err
		}
		settings = append(settings, "advertised.listeners=PLAINTEXT://"+b.Addr)
	}
	if b.dir, err = os.MkdirTemp("", "cdc-outbox-bench-"); err != nil {
		return nil, err
	}
	for n := range size {
		dir, port, controller := filepath.Join(b.dir, strconv.Itoa(n)), strconv.Itoa(ports[2*n]), strconv.Itoa(ports[2*n+1])
		cmd := exec.Command(script, slices.Concat([]string{"run", dir, port, controller}, clusterSettings(n, size, voters), settings)...)
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

func clusterSettings(n, size int, voters []string) []string {
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
