package sink

import (
	"github.com/cdc-outbox/cdc-outbox/config"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

// Explain gives the error of a client made with ClientOpts its failure.Class
// and remedy where a broker refused it for good: login and certificates. Other
// errors are returned as they are.
func Explain(err error) error {
	if remedy, ok := refused(err); ok {
		return failure.Configf(remedy, "%w", err)
	}
	return err
}

// CreateCommand returns the command of Kafka's own tools that creates the topic
// as cfg wants it.
func CreateCommand(cfg config.Kafka, topic string) string { return createCommand(cfg, topic) }

// AllowCommand returns the command of Kafka's own tools that lets the connector
// do operation on the topic.
func AllowCommand(cfg config.Kafka, operation, topic string) string {
	return allowCommand(cfg, operation, topic)
}
