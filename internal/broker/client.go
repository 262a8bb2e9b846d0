package broker

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
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

// MayPass reports whether err, which is not nil, may be gone when brokers are asked again: it
// is no answer, as that of a broker that starts or is away, or one that Kafka's protocol
// calls retriable.
func MayPass(err error) bool {
	refusal, answered := errors.AsType[*kerr.Error](err)
	return !answered || refusal.Retriable
}
