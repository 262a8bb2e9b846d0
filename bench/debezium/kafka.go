package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/child"
	"github.com/cdc-outbox/cdc-outbox/internal/freeport"
)

const kafkaTimeout = 2 * time.Minute

// kafka is one broker of Apache Kafka in a process of its own.
type kafka struct {
	version string
	addr    string
	process *process
	client  *kgo.Client
	admin   *kadm.Client
}

// startKafka starts a broker whose JVM has what Kafka's own kafka-server-start.sh
// gives it: that of the tests starts fast and stays slow.
func startKafka(ctx context.Context, dir string) (*kafka, error) {
	script, err := child.Script("kafka.sh")
	if err != nil {
		return nil, err
	}
	jars, err := child.Output(ctx, "", script, "fetch")
	if err != nil {
		return nil, err
	}
	port, err := freeport.Take()
	if err != nil {
		return nil, err
	}
	controller, err := freeport.Take()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(script, "run", filepath.Join(dir, "kafka"), strconv.Itoa(port), strconv.Itoa(controller))
	cmd.Env = append(os.Environ(), "KAFKA_JVM=-Xms1g -Xmx1g "+jvmOptions)
	k := &kafka{
		version: lastLine(jars)[strings.LastIndex(lastLine(jars), "-")+1:],
		addr:    net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
	}
	if k.process, err = startProcess(dir, "kafka", cmd); err != nil {
		return nil, err
	}
	if err := k.connect(ctx); err != nil {
		k.stop()
		return nil, k.process.explain(fmt.Errorf("wait for Kafka: %w", err))
	}
	return k, nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
}

// connect returns once the broker has a controller.
func (k *kafka) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, kafkaTimeout)
	defer cancel()
	var err error
	if k.client, err = kgo.NewClient(kgo.SeedBrokers(k.addr), kgo.MetadataMinAge(10*time.Millisecond)); err != nil {
		return err
	}
	k.admin = kadm.NewClient(k.client)
	return await.Ready(ctx, k.process.child.Exited(), func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		meta, err := k.admin.BrokerMetadata(ctx)
		if err == nil && (len(meta.Brokers) == 0 || meta.Controller < 0) {
			err = errors.New("there is no controller")
		}
		return err
	})
}

// stop ends the broker without ceremony: nobody needs its data any more.
func (k *kafka) stop() {
	if k.client != nil {
		k.client.Close()
	}
	k.process.kill()
}

// createTopic makes a topic whose records the broker stamps when it appends
// them: when a record was in Kafka is then known to the millisecond, without a
// consumer that competes for the processors.
func (k *kafka) createTopic(ctx context.Context, name string, partitions int) error {
	stamp := "LogAppendTime"
	ctx, cancel := context.WithTimeout(ctx, kafkaTimeout)
	defer cancel()
	_, err := k.admin.CreateTopic(ctx, int32(partitions), 1, map[string]*string{"message.timestamp.type": &stamp}, name)
	if err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	// The controller has it; the broker learns of it a moment later.
	if err := await.Ready(ctx, k.process.child.Exited(), func(ctx context.Context) error {
		_, err := k.records(ctx, name)
		return err
	}); err != nil {
		return fmt.Errorf("wait for topic %s: %w", name, err)
	}
	return nil
}

func (k *kafka) deleteTopic(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), kafkaTimeout)
	defer cancel()
	_, err := k.admin.DeleteTopic(ctx, name)
	return err
}
