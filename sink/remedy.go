package sink

import (
	"crypto/tls"

	"github.com/cdc-outbox/cdc-outbox/internal/broker"
)

// principal is who the broker takes the connector for, as an ACL command names
// it: by the login, else by the client certificate, else nobody in particular. It
// is a blank to fill in where a token says who it is.
func principal(cfg Options) string {
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

// Tools are Kafka's own, with the connector's brokers and login.
func (o *Options) Tools() broker.Tools {
	tools := broker.Tools{Principal: principal(*o)}
	if len(o.Brokers) > 0 {
		tools.Bootstrap = o.Brokers[0]
	}
	return tools
}

// CreateCommand returns the command of Kafka's own tools that creates the topic
// as cfg wants it.
func CreateCommand(cfg Options, topic string) string { return cfg.Tools().Create(NewTopic(cfg, topic)) }

// NewTopic is a topic as cfg wants topics to be.
func NewTopic(cfg Options, name string) broker.NewTopic {
	return broker.NewTopic{Name: name, Partitions: cfg.TopicPartitions, Replicas: cfg.ReplicationFactor, Settings: cfg.TopicConfig}
}
