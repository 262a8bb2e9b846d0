package kafkatest

import (
	"context"
	"fmt"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/container"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
)

// kafkaImage returns Apache Kafka's own image.
func kafkaImage() string { return "apache/kafka:" + version() }

func startContainer(ctx context.Context, o options) (server, error) {
	port, err := freeport.Take() // the broker has to be told
	if err != nil {
		return nil, err
	}
	env := map[string]string{
		"KAFKA_NODE_ID":                                  "1",
		"KAFKA_PROCESS_ROLES":                            "broker,controller",
		"KAFKA_CONTROLLER_QUORUM_VOTERS":                 "1@localhost:9093",
		"KAFKA_CONTROLLER_LISTENER_NAMES":                "CONTROLLER",
		"KAFKA_LISTENERS":                                "PLAINTEXT://:9092,CONTROLLER://:9093",
		"KAFKA_ADVERTISED_LISTENERS":                     fmt.Sprintf("PLAINTEXT://127.0.0.1:%d", port),
		"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP":           "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"KAFKA_AUTO_CREATE_TOPICS_ENABLE":                "false",
		"KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR":         "1",
		"KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
		"KAFKA_TRANSACTION_STATE_LOG_MIN_ISR":            "1",
		"KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS":         "0",
		"KAFKA_HEAP_OPTS":                                "-Xmx512m",
	}
	variable := strings.NewReplacer(".", "_", "-", "___") // as the image's scripts read them
	for name, value := range o.settings {
		env["KAFKA_"+strings.ToUpper(variable.Replace(name))] = value
	}
	return container.Run(ctx, container.Spec{Image: kafkaImage(), Port: 9092, HostPort: port, Env: env})
}
