package sink

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cdc-outbox/cdc-outbox/config"
)

// principal is who the broker takes the connector for, as an ACL command names
// it.
func principal(cfg config.Kafka) string {
	if cfg.SASL.Username != "" {
		return "User:" + cfg.SASL.Username
	}
	return "User:<principal>"
}

// bootstrap is the argument of --bootstrap-server in commands shown to the
// operator.
func bootstrap(cfg config.Kafka) string {
	if len(cfg.Brokers) == 0 {
		return "<broker>"
	}
	return cfg.Brokers[0]
}

// command returns a command line of one of Kafka's own tools.
func command(tool string, cfg config.Kafka, args string) string {
	return fmt.Sprintf("%s.sh --bootstrap-server %s %s", tool, bootstrap(cfg), args)
}

// CreateCommand returns the command of Kafka's own tools that creates the topic
// as cfg wants it.
func CreateCommand(cfg config.Kafka, topic string) string {
	args := fmt.Sprintf("--create --topic '%s'", topic)
	if cfg.TopicPartitions > 0 {
		args += fmt.Sprintf(" --partitions %d", cfg.TopicPartitions)
	}
	if cfg.ReplicationFactor > 0 {
		args += fmt.Sprintf(" --replication-factor %d", cfg.ReplicationFactor)
	}
	for _, key := range slices.Sorted(maps.Keys(cfg.TopicConfig)) {
		args += fmt.Sprintf(" --config '%s=%s'", key, cfg.TopicConfig[key])
	}
	return command("kafka-topics", cfg, args)
}

// AllowCommand returns the command of Kafka's own tools that lets the connector
// do operation on the topic, or on the cluster where topic is "".
func AllowCommand(cfg config.Kafka, operation, topic string) string {
	resource := "--cluster"
	if topic != "" {
		resource = fmt.Sprintf("--topic '%s'", topic)
	}
	return command("kafka-acls", cfg,
		fmt.Sprintf("--add --allow-principal '%s' --operation %s %s", principal(cfg), operation, resource))
}
