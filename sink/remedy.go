package sink

import (
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
)

// Principal is who the broker takes the connector for, as an ACL command names
// it: by the login, else by the client certificate, else nobody in particular. It
// is a blank to fill in where a token says who it is.
func Principal(cfg Options) string {
	switch {
	case cfg.SASL.Username != "":
		return "User:" + cfg.SASL.Username
	case cfg.SASL.Mechanism != "":
		return "User:<principal>"
	case cfg.TLS.CertFile == "":
		return "User:ANONYMOUS"
	}
	pair, err := tls.LoadX509KeyPair(cfg.TLS.CertFile, cfg.TLS.KeyFile)
	if err != nil {
		return "User:<principal>"
	}
	return "User:" + pair.Leaf.Subject.String() // RFC 2253, as the broker has it
}

// bootstrap is the argument of --bootstrap-server in commands shown to the
// operator.
func bootstrap(cfg Options) string {
	if len(cfg.Brokers) == 0 {
		return "<broker>"
	}
	return cfg.Brokers[0]
}

// command returns a command line of one of Kafka's own tools.
func command(tool string, cfg Options, args string) string {
	return fmt.Sprintf("%s.sh --bootstrap-server %s %s", tool, bootstrap(cfg), args)
}

// somePartitions are those of a topic in a command, where the configuration names
// no number. A broker's default is often 1, and more of them later place keys anew.
const somePartitions = 3

// CreateCommand returns the command of Kafka's own tools that creates the topic
// as cfg wants it.
func CreateCommand(cfg Options, topic string) string {
	args := fmt.Sprintf("--create --topic '%s'", topic)
	partitions := int32(somePartitions)
	if cfg.TopicPartitions > 0 {
		partitions = cfg.TopicPartitions
	}
	args += fmt.Sprintf(" --partitions %d", partitions)
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
func AllowCommand(cfg Options, operation, topic string) string {
	resource := "--cluster"
	if topic != "" {
		resource = fmt.Sprintf("--topic '%s'", topic)
	}
	return command("kafka-acls", cfg,
		fmt.Sprintf("--add --allow-principal '%s' --operation %s %s", Principal(cfg), operation, resource))
}

// AllowTransactionsCommand returns the command of Kafka's own tools that lets us
// use a transactional id.
func AllowTransactionsCommand(cfg Options, id string) string {
	return command("kafka-acls", cfg,
		fmt.Sprintf("--add --allow-principal '%s' --operation Write --operation Describe --transactional-id '%s'", Principal(cfg), id))
}

// AbortCommand returns the command of Kafka's own tools that ends a transaction
// of which no coordinator knows.
func AbortCommand(cfg Options, topic string, partition int32, from int64) string {
	return command("kafka-transactions", cfg, fmt.Sprintf("abort --topic '%s' --partition %d --start-offset %d", topic, partition, from))
}

// FeatureCommand returns the command of Kafka's own tools that raises a feature of
// the cluster to a version.
func FeatureCommand(cfg Options, feature string, version int) string {
	return command("kafka-features", cfg, fmt.Sprintf("upgrade --feature %s=%d", feature, version))
}

// UnavailableCommand returns the command of Kafka's own tools that shows the partitions
// without a leader, and their brokers.
func UnavailableCommand(cfg Options) string {
	return "start the brokers of " + command("kafka-topics", cfg, "--describe --unavailable-partitions")
}

// QuotaCommand returns the command of Kafka's own tools that shows the quotas that
// may count for the connector.
func QuotaCommand(cfg Options) string {
	return "raise the quota: " + command("kafka-configs", cfg, "--describe --entity-type users --entity-type clients")
}

// ConfigCommand returns the command of Kafka's own tools that gives a topic a
// setting.
func ConfigCommand(cfg Options, topic, setting string) string {
	return command("kafka-configs", cfg, fmt.Sprintf("--alter --entity-type topics --entity-name '%s' --add-config %s", topic, setting))
}
