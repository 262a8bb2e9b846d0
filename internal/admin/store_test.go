package admin

import (
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/must"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// What is saved in a pipeline's own topic leaves a note in the shared one. Without the
// right to, nothing is decided.
func TestStoreWritableAsksForTheSharedTopic(t *testing.T) {
	f := &fixture{Config: withTransactions(&kafkatest.Broker{}), t: t}
	own, shared := wiring.CheckpointTopic(f.Config)
	acl := func(topic string, op kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true}
	}
	may := []kfake.ACL{acl(own, kmsg.ACLOperationAll), acl(shared, kmsg.ACLOperationDescribe), acl(shared, kmsg.ACLOperationRead)}
	f.withKafka(kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, own, shared),
		kfake.User("PLAIN", "reads", "pw", may...), kfake.User("PLAIN", "writes", "pw", append(may, acl(shared, kmsg.ACLOperationWrite))...))
	exactlyOnce(f)
	as := func(user string) error {
		f.Sink.Kafka.SASL = sink.SASL{Mechanism: "PLAIN", Username: user, Password: "pw"}
		return storeWritable(t.Context(), f.Config, nil, nil)
	}
	must.OK(t, as("writes"))
	err := as("reads")
	wantClass(t, err, failure.Config, "read and write topic "+strconv.Quote(shared))
	must.Contain(t, failure.RemedyOf(err), "--allow-principal 'User:reads' --operation Read --operation Write")
}
