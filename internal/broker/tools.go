package broker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Tools makes command lines of Kafka's own tools, for remedies.
type Tools struct {
	// Bootstrap is the address of a broker; "": a blank to fill in.
	Bootstrap string
	// Principal returns the connector's name at the brokers for an ACL command,
	// or "". Only ACL commands call Principal: the answer may take a file. Empty
	// and nil: a blank to fill in.
	Principal func() string
}

// Command returns a command line of a tool.
func (t Tools) Command(tool, args string) string {
	bootstrap := t.Bootstrap
	if bootstrap == "" {
		bootstrap = "<broker>"
	}
	return fmt.Sprintf("%s.sh --bootstrap-server %s %s", tool, bootstrap, args)
}

// somePartitions are those of a topic in a command, where the configuration names
// no number. A broker's default is often 1, and more of them later place keys anew.
const somePartitions = 3

// Create creates a topic.
func (t Tools) Create(topic NewTopic) string {
	partitions := topic.Partitions
	if partitions < 1 {
		partitions = somePartitions
	}
	args := fmt.Sprintf("--create --topic '%s' --partitions %d", topic.Name, partitions)
	if topic.Replicas > 0 {
		args += fmt.Sprintf(" --replication-factor %d", topic.Replicas)
	}
	for _, key := range slices.Sorted(maps.Keys(topic.Settings)) {
		args += fmt.Sprintf(" --config '%s=%s'", key, topic.Settings[key])
	}
	return t.Command("kafka-topics", args)
}

// Set gives a topic a setting, as in "cleanup.policy=compact".
func (t Tools) Set(topic, setting string) string {
	return t.Command("kafka-configs", fmt.Sprintf("--alter --entity-type topics --entity-name '%s' --add-config %s", topic, setting))
}

// Allow lets the connector do an operation on a topic, or on the cluster where topic is "".
// Several operations are given as in "Write --operation Describe".
func (t Tools) Allow(operation, topic string) string {
	resource := "--cluster"
	if topic != "" {
		resource = fmt.Sprintf("--topic '%s'", topic)
	}
	return t.allow(operation, resource)
}

// AllowTransactions lets the connector use a transactional id.
func (t Tools) AllowTransactions(id string) string {
	return t.allow("Write --operation Describe", fmt.Sprintf("--transactional-id '%s'", id))
}

func (t Tools) allow(operation, resource string) string {
	principal := ""
	if t.Principal != nil {
		principal = t.Principal()
	}
	return t.Command("kafka-acls", fmt.Sprintf("--add --allow-principal '%s' --operation %s %s", cmp.Or(principal, "User:<principal>"), operation, resource))
}

// Abort ends a transaction of which no coordinator knows.
func (t Tools) Abort(topic string, partition int32, from int64) string {
	return t.Command("kafka-transactions", fmt.Sprintf("abort --topic '%s' --partition %d --start-offset %d", topic, partition, from))
}

// Coordinator says what to do about a transaction that its coordinator does not end.
func (t Tools) Coordinator(id string) string {
	return "if it stays in PrepareCommit or PrepareAbort, restart the broker that coordinates it: " +
		t.Command("kafka-transactions", fmt.Sprintf("describe --transactional-id '%s'", id))
}

// Upgrade raises a feature of the cluster to a version.
func (t Tools) Upgrade(feature string, version int) string {
	return t.Command("kafka-features", fmt.Sprintf("upgrade --feature %s=%d", feature, version))
}

// StartBrokers shows the brokers of a topic, or of all partitions without a leader where
// topic is "".
func (t Tools) StartBrokers(topic string) string {
	of := "--unavailable-partitions"
	if topic != "" {
		of = fmt.Sprintf("--topic '%s'", topic)
	}
	return "start the brokers of " + t.Command("kafka-topics", "--describe "+of)
}

// RaiseQuota shows the quotas that may count for the connector.
func (t Tools) RaiseQuota() string {
	return "raise the quota: " + t.Command("kafka-configs", "--describe --entity-type users --entity-type clients")
}
