package kafkatest

import (
	"context"
	"net"
	"strconv"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/container"
	"github.com/cdc-outbox/cdc-outbox/internal/freeport"
)

// kafkaImage is Apache Kafka's own image; the version is that of
// scripts/kafka.sh.
const kafkaImage = "apache/kafka:4.1.1"

// contained is Apache Kafka in a container.
type contained struct {
	port      int
	container *container.Container
}

func startContainer(ctx context.Context, o options) (*contained, error) {
	port, err := freeport.Take()
	if err != nil {
		return nil, err
	}
	c := &contained{port: port}
	env := map[string]string{
		"KAFKA_NODE_ID":                                  "1",
		"KAFKA_PROCESS_ROLES":                            "broker,controller",
		"KAFKA_CONTROLLER_QUORUM_VOTERS":                 "1@localhost:9093",
		"KAFKA_CONTROLLER_LISTENER_NAMES":                "CONTROLLER",
		"KAFKA_LISTENERS":                                "PLAINTEXT://:9092,CONTROLLER://:9093",
		"KAFKA_ADVERTISED_LISTENERS":                     "PLAINTEXT://" + c.address(),
		"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP":           "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"KAFKA_AUTO_CREATE_TOPICS_ENABLE":                "false",
		"KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR":         "1",
		"KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
		"KAFKA_TRANSACTION_STATE_LOG_MIN_ISR":            "1",
		"KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS":         "0",
		"KAFKA_HEAP_OPTS":                                "-Xmx512m",
	}
	for name, value := range o.settings {
		env["KAFKA_"+strings.ToUpper(strings.ReplaceAll(name, ".", "_"))] = value
	}
	c.container, err = container.Run(ctx, container.Spec{
		Image: kafkaImage, Port: 9092, HostPort: port, Env: env,
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (c *contained) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)) }

func (c *contained) stop(ctx context.Context) error { return c.container.Stop(ctx, "TERM") }

func (c *contained) resume(ctx context.Context) error { return c.container.Start(ctx) }

func (c *contained) close() error { return c.container.Close() }
