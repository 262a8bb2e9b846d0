package broker

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A broker numbers producers (InitProducerID) before they may write. After a
// refusal with an error that franz-go does not retry, such as
// UNKNOWN_SERVER_ERROR or CLUSTER_AUTHORIZATION_FAILED, the client keeps the
// error and fails every record from then on. Only a new client asks the broker
// again.

// Refusals is the number of refused clients in a row after which an error only
// an operator can fix counts as final: a starting broker may not know its users
// yet.
const Refusals = 3

// numberPatience bounds the question, for a client that has to ask a broker.
const numberPatience = 10 * time.Second

// Refused returns why the client can never write again, or nil where it can or
// asks for a number again by itself. A client made with
// kgo.StopProducerOnDataLossDetected returns the loss, if stopped by one. Refused
// blocks for as long as a request at most, and only for a client without a number.
func Refused(ctx context.Context, client *kgo.Client) *kerr.Error {
	ctx, cancel := context.WithTimeout(ctx, numberPatience)
	defer cancel()
	_, _, err := client.ProducerID(ctx)
	if err == nil || MayPass(err) {
		return nil
	}
	refusal, _ := errors.AsType[*kerr.Error](err)
	return refusal
}
