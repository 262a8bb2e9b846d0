package admin

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/cloud"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// The client says only that the call was ended.
func TestClusterSaysThatBrokersAreSilent(t *testing.T) {
	c := &cluster{cfg: *sink.DefaultOptions(), patience: time.Second}
	silent, _ := kafkatest.Silent(t)
	c.cfg.Brokers = []string{silent}
	if err := c.connect(t.Context()); err == nil || !strings.Contains(err.Error(), "no broker answered within 1s") {
		t.Errorf("connect = %v", err)
	}
}

// withKafka moves events and checkpoint to a cluster in this process.
func (f *fixture) withKafka(opts ...kfake.Opt) *kfake.Cluster {
	f.t.Helper()
	c := must.Get(kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...))(f.t)
	f.t.Cleanup(c.Close)
	f.Sink = config.Sink{Kafka: sink.DefaultOptions()}
	f.Sink.Kafka.Brokers = c.ListenAddrs()
	f.Checkpoint.Store = store.StoreKafka
	return c
}

func TestCheckKafka(t *testing.T) {
	const event = "outbox.event.order"
	three := []kfake.Opt{kfake.NumBrokers(3), kfake.SeedTopics(1, event)}
	defaults := func(replicas, least string) kfake.Opt {
		return kfake.BrokerConfigs(map[string]string{"default.replication.factor": replicas, "min.insync.replicas": least})
	}
	for _, tt := range []struct {
		name    string
		opts    []kfake.Opt
		do      func(*fixture)
		check   string
		outcome Outcome
		words   string
	}{
		{"missing event topic", nil, func(*fixture) {}, "kafka.topic " + event, Fail, "create_topics is false"},
		{"event topic to be created", nil, func(f *fixture) { f.Sink.Kafka.CreateTopics = true },
			"kafka.topic " + event, OK, "run will create it"},
		{"event topic that cannot be created", nil, func(f *fixture) {
			f.Sink.Kafka.CreateTopics = true
			f.Sink.Kafka.ReplicationFactor = 7
		}, "kafka.topic " + event, Fail, "could not be created"},
		{"event topic there", []kfake.Opt{kfake.SeedTopics(3, event)}, func(*fixture) {}, "kafka.topic " + event, OK, "3 partitions"},
		{"empty outbox", nil, func(f *fixture) { f.exec(`TRUNCATE outbox`) }, "kafka.topics", Skipped, "no rows"},
		{"messages only", nil, func(f *fixture) { f.Source.Mode, f.Source.Tables = config.ModeMessage, nil },
			"kafka.topics", Skipped, "only once it is written"},
		{"at least once", nil, func(*fixture) {}, "kafka.transactions", Skipped, "at_least_once"},
		{"exactly once", nil, exactlyOnce, "kafka.transactions", OK, "cdc-outbox/"},
		{"no dead letters", nil, func(*fixture) {}, "kafka.dead_letter_topic", Skipped, "stop"},
		{"missing dead-letter topic", nil, func(f *fixture) { f.Errors.OnBadEvent = transform.BadEventDeadLetter },
			"kafka.dead_letter_topic", Fail, "does not exist"},
		{"dead letters that are cut", []kfake.Opt{kfake.SeedTopics(1, "outbox.dead-letter")}, func(f *fixture) { f.Errors.OnBadEvent = transform.BadEventDeadLetter },
			"kafka.dead_letters", Warn, "max.message.bytes of topic \"outbox.dead-letter\" is 1048588"},
		{"dead letters of any event", nil, deadLetters("max.message.bytes", "2000000"), "kafka.dead_letters", OK, "up to 2000000 bytes"},
		{"compacted dead letters", nil, deadLetters("cleanup.policy", "compact"), "kafka.dead_letter_cleanup", Warn, "is compacted"},
		{"a repair of any topic", []kfake.Opt{kfake.SeedTopics(3, event)}, repairs, "repair.topic " + event, OK, "may be read"},
		{"a repair, exactly once", nil, func(f *fixture) { repairs(f); exactlyOnce(f) }, "repair.transactional_id", OK, "/repair\" may be used"},
		{"a repair of a missing topic", nil, repairs, "repair.topic " + event, Skipped, "own line"},
		{"checkpoint topic to be created", nil, func(*fixture) {}, "kafka.checkpoint_topic", OK, "run will create it"},
		{"checkpoint topic not compacted", []kfake.Opt{kfake.SeedTopics(1, "cdc-outbox.checkpoints.a")}, func(*fixture) {},
			"checkpoint", Fail, "not compact"},
		{"checkpoint topic of several partitions", []kfake.Opt{kfake.SeedTopics(2, "cdc-outbox.checkpoints.a")}, func(*fixture) {},
			"checkpoint", Fail, "2 partitions"},
		// acks=all is worth as many copies as the topics have.
		{"one replica", []kfake.Opt{kfake.SeedTopics(1, event)}, func(*fixture) {}, "kafka.copies", Warn, event + ": one replica"},
		{"three, of which one may be alone", append(three, defaults("3", "1")), func(*fixture) {}, "kafka.copies", Warn, "min.insync.replicas is 1"},
		{"three, of which two must be there", append(three, defaults("3", "2")), func(*fixture) {}, "kafka.copies", OK, "at least two copies"},
		{"more than there are, which brokers cap", []kfake.Opt{kfake.SeedTopics(1, event), defaults("1", "2")}, func(*fixture) {}, "kafka.copies", Warn, event + ": one replica"},
		{"four of three, which brokers cap", append(three, defaults("3", "4")), func(*fixture) {}, "kafka.copies", OK, "at least two copies"},
		{"a dead-letter topic to be created", append(three, defaults("3", "2")), func(f *fixture) {
			f.Errors.OnBadEvent = transform.BadEventDeadLetter
			f.Sink.Kafka.CreateTopics, f.Sink.Kafka.ReplicationFactor = true, 1
			f.Sink.Kafka.TopicConfig = map[string]string{"min.insync.replicas": "1"}
		}, "kafka.copies", Warn, "outbox.dead-letter: one replica"},
		{"a topic that is the same for all rows", three, func(f *fixture) {
			f.exec(`TRUNCATE outbox`)
			f.Route.Topic = "literal"
			f.Sink.Kafka.CreateTopics, f.Sink.Kafka.TopicConfig = true, map[string]string{"min.insync.replicas": "1"}
		}, "kafka.copies", Warn, "literal: min.insync.replicas is 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := sound(t)
			f.insert("order", "1", "{}")
			c := f.withKafka(tt.opts...)
			f.Checkpoint.Key = "a"
			tt.do(f)
			before := c.TopicInfo(wiring.CheckpointTopic(f.Config))
			f.wantCheck(tt.check, tt.outcome, tt.words)
			if after := c.TopicInfo(wiring.CheckpointTopic(f.Config)); (before == nil) != (after == nil) {
				t.Error("check created the checkpoint topic")
			}
		})
	}
}

// deadLetters makes their topic with a setting.
func deadLetters(key, value string) func(*fixture) {
	return func(f *fixture) {
		f.Errors.OnBadEvent = transform.BadEventDeadLetter
		client := must.Get(kgo.NewClient(kgo.SeedBrokers(f.Sink.Kafka.Brokers...)))(f.t)
		defer client.Close()
		must.Get(kadm.NewClient(client).CreateTopic(f.ctx(), 1, 1, map[string]*string{key: &value}, "outbox.dead-letter"))(f.t)
	}
}

// A dedicated controller has defaults of its own for the topics it creates. A
// broker's defaults say nothing of them.
func TestCheckCopiesAsksTheController(t *testing.T) {
	f := sound(t)
	c := f.withKafka(kfake.NumBrokers(3), kfake.BrokerConfigs(map[string]string{"default.replication.factor": "3", "min.insync.replicas": "2"}))
	c.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.CreateTopicsRequest)
		if !req.ValidateOnly {
			t.Error("check creates a topic")
		}
		resp, two := req.ResponseKind().(*kmsg.CreateTopicsResponse), "2"
		answer := kmsg.NewCreateTopicsResponseTopic()
		answer.Topic, answer.ReplicationFactor, answer.NumPartitions = req.Topics[0].Topic, 1, 1
		answer.Configs = []kmsg.CreateTopicsResponseTopicConfig{{Name: "min.insync.replicas", Value: &two}}
		resp.Topics = append(resp.Topics, answer)
		return resp, nil, true
	})
	f.wantCheck("kafka.copies", Warn, wiring.CheckpointTopic(f.Config)+": one replica")
}

func repairs(f *fixture) { f.Errors.OnLoss = config.LossRepair }

func exactlyOnce(f *fixture) { f.Sink.Kafka.Delivery = sink.DeliveryExactlyOnce }

// Brokers' knowledge of transactions is worth as many copies as there are.
// kfake has no such topic.
func TestCheckTransactionsOfApacheKafka(t *testing.T) {
	f := sound(t)
	b := kafkatest.Start(t, kafkatest.Apache())
	f.Sink = config.Sink{Kafka: sink.DefaultOptions()}
	f.Sink.Kafka.Brokers, f.Checkpoint.Store = b.Brokers, store.StoreKafka
	f.wantCheck("kafka.copies", Warn, wiring.CheckpointTopic(f.Config)+": one replica") // as after its creation
	exactlyOnce(f)
	f.wantCheck("kafka.transaction_version", OK, "transaction.version is 2")
	f.wantCheck("kafka.transaction_copies", Warn, "1 replicas and min.insync.replicas 1")
	f.wantCheck("kafka.open_transactions", OK, "no transaction has been open")
	f.wantCheck("checkpoint", Fail, "sink.kafka.delivery is exactly_once, and slot")
	b.SetFeature(t, "transaction.version", 1)
	f.wantCheck("kafka.transaction_version", Warn, "transaction.version is 1")
}

// A role without any right learns of each privilege by name.
func TestCheckKafkaPrivileges(t *testing.T) {
	topic := func(name string, op kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true}
	}
	f := sound(t)
	f.insert("order", "1", "{}")
	f.insert("secret", "1", "{}")
	f.insert("parcel", "1", "{}")
	c := f.withKafka(kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "outbox.event.order", "outbox.event.secret", "outbox.event.parcel"),
		kfake.User("PLAIN", "cdc", "pw", topic("outbox.event.order", kmsg.ACLOperationDescribe),
			topic("outbox.event.parcel", kmsg.ACLOperationDescribe), topic("outbox.event.parcel", kmsg.ACLOperationWrite),
			kfake.ACL{Resource: kmsg.ACLResourceTypeTransactionalId, Name: "cdc-outbox/", Pattern: kmsg.ACLResourcePatternTypePrefixed,
				Operation: kmsg.ACLOperationDescribe, Allow: true}))
	f.Sink.Kafka.SASL = sink.SASL{Mechanism: "PLAIN", Username: "cdc", Password: "pw"}

	r := Check(f.ctx(), f.Config)
	write := wantFinding(t, r, "kafka.topic outbox.event.order", Fail, "does not allow to write")
	must.Contain(t, write.Remedy, "--allow-principal 'User:cdc' --operation Write --topic 'outbox.event.order'")
	wantFinding(t, r, "kafka.topic outbox.event.secret", Fail, "TOPIC_AUTHORIZATION_FAILED")
	acl := wantFinding(t, r, "kafka.checkpoint_topic", Fail, "TOPIC_AUTHORIZATION_FAILED")
	must.Contain(t, acl.Remedy, "--allow-principal 'User:cdc' --operation Read --operation Write --operation Describe --operation DescribeConfigs --operation Create --topic")
	wantFinding(t, r, "checkpoint", Skipped, "see kafka.checkpoint_topic")
	wantFinding(t, r, "kafka.topic outbox.event.parcel", OK, "may be written to")

	f.Errors.OnLoss = config.LossRepair
	compare := f.wantCheck("repair.topic outbox.event.parcel", Fail, "does not allow to read")
	must.Contain(t, compare.Remedy, "--operation Read --operation DescribeConfigs --topic 'outbox.event.parcel'")
	f.wantCheck("repair.topic outbox.event.secret", Fail, "does not allow to read")

	exactlyOnce(f)
	read := f.wantCheck("kafka.topic outbox.event.parcel", Warn, "but not read")
	must.Contain(t, read.Remedy, "--operation Read --topic 'outbox.event.parcel'")

	id := must.Get(wiring.TransactionalID(f.Config))(t)
	use := f.wantCheck("kafka.transactions", Fail, "write in transactions of transactional id")
	must.Contain(t, use.Remedy, "--operation Write --operation Describe --transactional-id '"+id+"'")
	end := f.wantCheck("repair.transactional_id", Fail, "write in transactions of transactional id")
	must.Contain(t, end.Remedy, "--transactional-id '"+id+"/repair'")

	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, TopLevel: true, Err: kerr.SaslAuthenticationFailed, Count: -1})
	f.wantCheck("kafka.connection", Fail, "SASL_AUTHENTICATION_FAILED")
}

// The right to Describe the transactional id finds the coordinator, and is not
// enough to write. The question does not disturb the id's present user.
func TestCheckTransactionsMayBeWritten(t *testing.T) {
	f := sound(t)
	b := kafkatest.Start(t, kafkatest.Apache(), kafkatest.Setting("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
		kafkatest.Setting("allow.everyone.if.no.acl.found", "true"))
	b.CreateTopic(t, "t", 1, nil)
	f.Sink = config.Sink{Kafka: sink.DefaultOptions()}
	f.Sink.Kafka.Brokers, f.Checkpoint.Store = b.Brokers, store.StoreKafka
	exactlyOnce(f)
	id := must.Get(wiring.TransactionalID(f.Config))(t)
	owner := b.Client(t, kgo.TransactionalID(id))
	must.OK(t, owner.BeginTransaction())
	must.OK(t, owner.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr())
	f.wantCheck("kafka.transactions", OK, "may be used")
	must.OK(t, owner.EndTransaction(t.Context(), kgo.TryCommit))
	f.wantCheck("kafka.transactions", OK, "may be used")
	must.OK(t, owner.BeginTransaction())
	must.OK(t, owner.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("y")}).FirstErr())
	must.OK(t, owner.EndTransaction(t.Context(), kgo.TryCommit))

	acl := kadm.NewACLs().TransactionalIDs(id).Allow("User:ANONYMOUS").AllowHosts().Operations(kadm.OpDescribe).ResourcePatternType(kadm.ACLPatternLiteral)
	created := must.Get(kadm.NewClient(owner).CreateACLs(t.Context(), acl))(t)
	for _, c := range created {
		must.OK(t, c.Err)
	}
	var r *CheckReport
	await.Until(t, "the ACL at the broker", func() bool {
		r = Check(f.ctx(), f.Config)
		return find(t, r, "kafka.transactions").Outcome == Fail
	})
	write := wantFinding(t, r, "kafka.transactions", Fail, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
	must.Contain(t, write.Remedy, "--operation Write --operation Describe --transactional-id '"+id+"'")
}

// The verb names the owner of each side's login, and tells whether a token could be had.
func TestCheckIdentity(t *testing.T) {
	c := cloud.New(t)
	c.WebIdentity(t)
	c.WorkloadIdentity(t)
	f := sound(t)
	front := c.Front(t, f.Source.URL.Reveal())
	f.Source.URL = setting.Secret(catalog.Login{Auth: catalog.AuthAWS}.In(front.URL(t)))
	f.withKafka(kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "p"))
	f.Sink.Kafka.SASL = sink.SASL{Mechanism: "OAUTHBEARER", Identity: "azure"}
	r := Check(f.ctx(), f.Config)
	wantFinding(t, r, "postgresql.identity", OK, cloud.RoleARN+" (web identity), with a token until ")
	wantFinding(t, r, "postgresql.connection", OK, "")
	wantFinding(t, r, "kafka.identity", OK, "Entra workload identity "+cloud.Client+", with a token until ")

	f.Sink.Kafka.SASL = sink.SASL{Mechanism: "OAUTHBEARER", TokenURL: c.TokenURL(), ClientID: cloud.Subject, ClientSecret: "wrong"}
	must.Contain(t, f.wantCheck("kafka.identity", Fail, "OAuth client cdc at "+c.TokenURL()).Remedy, "client_secret")
	f.Sink.Kafka.SASL = sink.SASL{Mechanism: "PLAIN", Username: "u", Password: "p", Written: setting.Files{"password": {{Path: "/run/secrets/kafka"}}}}
	f.wantCheck("kafka.identity", OK, "the login in /run/secrets/kafka")

	c.Live(time.Minute, func() time.Time { return time.Now().Add(-time.Hour) })
	t.Setenv("AWS_ROLE_SESSION_NAME", "another") // drops the credentials kept
	must.Contain(t, f.wantCheck("postgresql.identity", Warn, "has ended at").Remedy, "clock")
	c.Answer(http.StatusServiceUnavailable)
	t.Setenv("AWS_ROLE_SESSION_NAME", "a third")
	r = Check(f.ctx(), f.Config)
	must.Contain(t, wantFinding(t, r, "postgresql.identity", Fail, "ask AWS STS").Remedy, "AWS_ROLE_ARN")
	wantFinding(t, r, "postgresql", Skipped, "no connection")
}
