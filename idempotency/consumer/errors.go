package consumer

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The causes with which a handler's context ends (context.Cause). Beside them
// there is storage.ErrLeaseLost.
var (
	// ErrRevoked: the group gives the partition to another member, and the
	// handler did not end within Config.RevokeTimeout.
	ErrRevoked = errors.New("partition revoked")
	// ErrPartitionLost: the member was expelled from the group; another member
	// may have the partition already.
	ErrPartitionLost = errors.New("partition lost")
	// ErrStopping: the consumer stops, and the handler did not end within
	// Config.DrainTimeout.
	ErrStopping = errors.New("consumer is stopping")
)

// hopeless lists answers of brokers that do not change when asked again.
var hopeless = []error{
	kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed,
	kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState,
	kerr.InvalidGroupID, kerr.InvalidTopicException, kerr.InconsistentGroupProtocol,
	kerr.FencedInstanceID, kerr.InvalidSessionTimeout, kerr.UnsupportedVersion,
}

// fatal reports whether an error of the client is one that retrying cannot
// fix.
func fatal(err error) bool {
	for _, h := range hopeless {
		if errors.Is(err, h) {
			return true
		}
	}
	// The client stops to fetch the partition, and would never say so again.
	_, bomb := errors.AsType[*kgo.ErrDecompressTooLarge](err)
	return bomb || errors.Is(err, kgo.ErrClientClosed) || errors.Is(err, ErrScopeTaken)
}
