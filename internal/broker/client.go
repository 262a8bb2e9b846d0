package broker

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// Connect returns a client with the options, and opens no connection: an unreachable cluster
// shows in the first request. An error is about the configuration.
func Connect(opts ...kgo.Opt) (*kgo.Client, error) {
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, failure.Configf("correct sink.kafka", "set up the Kafka client: %w", err)
	}
	return client, nil
}

// ConnectOnce is Connect for a client that repeats no request by itself.
func ConnectOnce(opts ...kgo.Opt) (*kgo.Client, error) {
	return Connect(append(opts[:len(opts):len(opts)], kgo.RequestRetries(0))...)
}

// MayPass reports whether brokers may answer otherwise next time: the error, not nil, is no
// answer, as of a broker starting or away, or retriable by Kafka's protocol.
func MayPass(err error) bool {
	refusal, answered := errors.AsType[*kerr.Error](err)
	return !answered || refusal.Retriable
}
