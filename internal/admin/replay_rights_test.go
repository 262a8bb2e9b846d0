package admin

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// A missing right ends a replay or a verify with the ACL or the GRANT, and a repetition
// with the right does the work.
func TestReplayAndVerifyNameMissingRights(t *testing.T) {
	broker := kafkatest.Start(t, kafkatest.Logins("cdc"))
	p := newPublished(t)
	p.broker = broker
	p.Sink.Kafka.Brokers, p.Sink.Kafka.CreateTopics = broker.Brokers, false
	p.Sink.Kafka.SASL = sink.SASL{Mechanism: "PLAIN", Username: "cdc", Password: kafkatest.Password}
	for _, topic := range []string{"source", "elsewhere", "outbox.event.order"} {
		broker.CreateTopic(t, topic, 1, nil)
	}
	p.wrote("source", pastEvents...)
	p.write(1)
	p.wrote("outbox.event.order", past{eventID(1), "k1", "x", 1})
	fromTopic := func() error {
		_, err := p.again(true, TopicReplayOptions{From: "source", To: "elsewhere", Until: time.Now()})
		return err
	}
	verify := func() error {
		_, err := Verify(p.ctx(), p.Config, p.options(AuditOptions{}))
		return err
	}
	for _, step := range []struct {
		do     func() error
		remedy string
		topic  string
		right  kadm.ACLOperation
	}{
		{fromTopic, "--operation Read", "source", kadm.OpRead},
		{fromTopic, "'elsewhere'", "elsewhere", kadm.OpRead},
		{fromTopic, "--operation IdempotentWrite", "elsewhere", kadm.OpWrite},
		{verify, "'outbox.event.order'", "outbox.event.order", kadm.OpRead},
	} {
		err := step.do()
		wantClass(t, err, failure.Config)
		must.Contain(t, failure.RemedyOf(err), "kafka-acls.sh", step.remedy)
		broker.Allow(t, "cdc", kadm.NewACLs().Topics(step.topic), step.right, kadm.OpDescribe, kadm.OpDescribeConfigs)
	}
	must.OK(t, fromTopic())
	must.OK(t, verify())
	p.exec(`DROP ROLE IF EXISTS verify_poor`, `CREATE ROLE verify_poor LOGIN PASSWORD 'pw'`)
	t.Cleanup(func() { p.exec(`DROP ROLE verify_poor`) })
	p.Source.URL = asRole(p.Source.URL, "verify_poor", "pw")
	wantClass(t, verify(), failure.Config, "may not read public.outbox")
	must.Contain(t, failure.RemedyOf(verify()), `GRANT SELECT ON "public"."outbox" TO "verify_poor"`)
}
