package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	brokerCommand = "broker"
	topic         = "outbox.event.order"
)

// runBroker is the child process: a kfake cluster with one topic, whose address
// it prints; it ends with its standard input.
func runBroker(args []string) error {
	partitions, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(int32(partitions), topic))
	if err != nil {
		return err
	}
	defer cluster.Close()
	fmt.Println(cluster.ListenAddrs()[0])
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// broker is a running child.
type broker struct {
	cmd   *exec.Cmd
	stdin io.Closer
	addr  string
}

func startBroker(ctx context.Context, partitions int) (*broker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, brokerCommand, strconv.Itoa(partitions))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("start broker: %w", err)
	}
	return &broker{cmd: cmd, stdin: stdin, addr: strings.TrimSpace(addr)}, nil
}

func (b *broker) stop() {
	_ = b.stdin.Close()
	_ = b.cmd.Wait()
}

// records is the number of records in the topic.
func (b *broker) records(ctx context.Context) (int64, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.addr))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	var n int64
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n, ends.Error()
}
