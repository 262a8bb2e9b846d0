package wiring

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// FleetClient makes the client for the fleet's group. The configuration has a fleet.
func FleetClient(cfg *config.Config) (*kgo.Client, error) {
	opts, err := sink.ClientOpts(*cfg.Sink.Kafka)
	if err != nil {
		return nil, err
	}
	return broker.Connect(opts...)
}
