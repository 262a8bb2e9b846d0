package sink

import (
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
)

// principal is the connector's name at the brokers, as an ACL command has it:
// from the login, else from the client certificate, which is read anew. "" where
// only the brokers know the name, as with a token.
func (o *Options) principal() string {
	switch {
	case o.SASL.Username != "":
		return "User:" + o.SASL.present().Username
	case o.SASL.Mechanism != "":
		return ""
	case o.TLS.CertFile == "":
		return "User:ANONYMOUS"
	}
	found, err := pair(o.TLS.CertFile, o.TLS.KeyFile)
	if err != nil {
		return ""
	}
	return "User:" + found.Leaf.Subject.String() // RFC 2253, as the broker has it
}

// Tools are Kafka's own, with the connector's brokers and login.
func (o *Options) Tools() broker.Tools {
	tools := broker.Tools{Principal: o.principal}
	if len(o.Brokers) > 0 {
		tools.Bootstrap = o.Brokers[0]
	}
	return tools
}

// CreateCommand returns the command of Kafka's own tools for the topic's creation
// as cfg wants it.
func CreateCommand(cfg Options, topic string) string { return cfg.Tools().Create(NewTopic(cfg, topic)) }

// NewTopic is a topic as cfg wants topics to be.
func NewTopic(cfg Options, name string) broker.NewTopic {
	return broker.NewTopic{Name: name, Partitions: cfg.TopicPartitions, Replicas: cfg.ReplicationFactor, Settings: cfg.TopicConfig}
}
