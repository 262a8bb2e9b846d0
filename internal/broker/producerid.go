package broker

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A broker numbers producers (InitProducerID) before they may write. If it
// refuses with an error that franz-go does not retry, such as
// UNKNOWN_SERVER_ERROR or CLUSTER_AUTHORIZATION_FAILED, the client keeps that
// error and fails every record from then on. Only a new client asks the broker
// again.

// Refusals is how many clients in a row must be refused with an error only an
// operator can fix before that counts as final: a broker that is starting may
// not know its users yet.
const Refusals = 3

// numberPatience bounds the question, for a client that has to ask a broker.
const numberPatience = 10 * time.Second

// Refused returns why the client can never write again, or nil where it can or
// asks for a number again by itself. A client made with
// kgo.StopProducerOnDataLossDetected gives the loss that stopped it. It blocks
// for as long as a request at most, and only where the client has no number.
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
