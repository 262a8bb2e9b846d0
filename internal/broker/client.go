package broker

import (
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// Connect returns a client with the options. It opens no connection: a cluster that cannot be
// reached shows in the first request. The error is one of the configuration.
func Connect(opts ...kgo.Opt) (*kgo.Client, error) {
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, failure.Configf("correct sink.kafka", "set up the Kafka client: %w", err)
	}
	return client, nil
}

// ConnectOnce is Connect for a client that asks, and repeats no request by itself.
func ConnectOnce(opts ...kgo.Opt) (*kgo.Client, error) {
	return Connect(append(opts[:len(opts):len(opts)], kgo.RequestRetries(0))...)
}

// Admin asks through the client, which stays the caller's to close.
func Admin(client *kgo.Client) *kadm.Client { return kadm.NewClient(client) }
