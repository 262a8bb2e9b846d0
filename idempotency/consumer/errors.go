package consumer

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ErrCutOff is the cause (context.Cause) of a handler's context that the group
// or a stop has ended early; its text says which. The other cause is
// idempotency.ErrLeaseLost.
var ErrCutOff = errors.New("handling was cut off")

var (
	// errRevoked: the group gives the partition to another member, and the
	// handler did not end within Config.RevokeTimeout.
	errRevoked = fmt.Errorf("%w: the partition is revoked", ErrCutOff)
	// errPartitionLost: the member was expelled from the group; another member
	// may have the partition already.
	errPartitionLost = fmt.Errorf("%w: the partition is lost", ErrCutOff)
	// errStopping: the consumer stops, and the handler did not end within
	// Config.DrainTimeout.
	errStopping = fmt.Errorf("%w: the consumer is stopping", ErrCutOff)
)

// hopeless lists brokers' answers that do not change when asked again.
var hopeless = []error{
	kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed,
	kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState,
	kerr.InvalidGroupID, kerr.InvalidTopicException, kerr.InconsistentGroupProtocol,
	kerr.FencedInstanceID, kerr.InvalidSessionTimeout, kerr.UnsupportedVersion,
}

// advised adds the remedy to an error whose name alone does not tell it.
func advised(err error) error {
	if errors.Is(err, kerr.InconsistentGroupProtocol) {
		return fmt.Errorf("%w: the group has members, of another client perhaps, that divide partitions in another way: "+
			"offer their way too as long as both run (Options: kgo.Balancers(kgo.RangeBalancer()) for most clients' default), or stop them first", err)
	}
	return err
}

// fatal reports whether an error of the client is lasting.
func fatal(err error) bool {
	for _, h := range hopeless {
		if errors.Is(err, h) {
			return true
		}
	}
	// The client stops to fetch the partition, and would never say so again.
	_, bomb := errors.AsType[*kgo.ErrDecompressTooLarge](err)
	return bomb || errors.Is(err, kgo.ErrClientClosed) || errors.Is(err, errScopeTaken)
}
