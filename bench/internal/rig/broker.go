package rig

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/child"
)

// brokerCommand is the argument by which a benchmark's program becomes the
// broker.
const brokerCommand = "rig-broker"

// serveBroker is the broker, if the program was started to be it: a kfake
// cluster with one topic, whose address it prints, until its standard input
// ends. ok tells whether it was.
func serveBroker() (ok bool, err error) {
	if len(os.Args) != 4 || os.Args[1] != brokerCommand {
		return false, nil
	}
	partitions, err := strconv.ParseInt(os.Args[3], 10, 32)
	if err != nil {
		return true, err
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(int32(partitions), os.Args[2]))
	if err != nil {
		return true, err
	}
	defer cluster.Close()
	fmt.Println(cluster.ListenAddrs()[0])
	_, err = io.Copy(io.Discard, os.Stdin)
	return true, err
}

// Broker is a running broker.
type Broker struct {
	Addr  string
	topic string

	process *child.Process
	stdin   io.Closer
}

// StartBroker starts this program once more, as a broker with the topic. Its
// main must be Main.
func StartBroker(topic string, partitions int) (*Broker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, brokerCommand, topic, strconv.Itoa(partitions))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = child.Attributes(syscall.SIGKILL)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	process, err := child.Start(cmd)
	if err != nil {
		return nil, err
	}
	b := &Broker{topic: topic, process: process, stdin: stdin}
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		b.Stop()
		return nil, fmt.Errorf("start the broker: %w", err)
	}
	b.Addr = strings.TrimSpace(addr)
	return b, nil
}

// Stop ends the broker and waits until it is gone.
func (b *Broker) Stop() {
	_ = b.stdin.Close()
	<-b.process.Exited()
}

// Records is the number of records in the topic.
func (b *Broker) Records(ctx context.Context) (int64, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, b.topic)
	if err != nil {
		return 0, err
	}
	var n int64
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n, ends.Error()
}
