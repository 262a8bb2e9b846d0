package admin

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// acks=all is worth as many copies as the topics have.
func TestCheckCopies(t *testing.T) {
	const event = "outbox.event.order"
	three := []kfake.Opt{kfake.NumBrokers(3), kfake.SeedTopics(1, event)}
	defaults := func(replicas, least string) kfake.Opt {
		return kfake.BrokerConfigs(map[string]string{"default.replication.factor": replicas, "min.insync.replicas": least})
	}
	for name, tt := range map[string]struct {
		opts    []kfake.Opt
		do      func(*fixture)
		outcome Outcome
		words   string
	}{
		"one replica":                       {[]kfake.Opt{kfake.SeedTopics(1, event)}, func(*fixture) {}, Warn, event + ": one replica"},
		"three, of which one may be alone":  {append(three, defaults("3", "1")), func(*fixture) {}, Warn, "min.insync.replicas is 1"},
		"three, of which two must be there": {append(three, defaults("3", "2")), func(*fixture) {}, OK, "at least two copies"},
		"more than there are":               {[]kfake.Opt{kfake.SeedTopics(1, event), defaults("1", "2")}, func(*fixture) {}, Fail, "nothing can ever be written"},
		"a dead-letter topic to be created": {append(three, defaults("3", "2")), func(f *fixture) {
			f.Errors.OnBadEvent = transform.BadEventDeadLetter
			f.Sink.Kafka.CreateTopics, f.Sink.Kafka.ReplicationFactor = true, 1
			f.Sink.Kafka.TopicConfig = map[string]string{"min.insync.replicas": "1"}
		}, Warn, "outbox.dead-letter: one replica"},
		"a topic that is the same for all rows": {append(three, defaults("3", "1")), func(f *fixture) {
			f.exec(`TRUNCATE outbox`)
			f.Route.Topic = "literal"
		}, Warn, "literal: min.insync.replicas is 1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := sound(t)
			f.insert("order", "1", "{}")
			f.withKafka(tt.opts...)
			tt.do(f)
			f.wantCheck("kafka.copies", tt.outcome, tt.words)
		})
	}
}
