package admin

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

func TestOpenTransactionsAreListedAndOursIsAborted(t *testing.T) {
	b := kafkatest.Start(t, kafkatest.Apache())
	b.CreateTopic(t, "t", 1, nil)
	cfg := withTransactions(b)
	cfg.Sink.Kafka.Delivery = "at_least_once"
	if _, err := OpenTransactions(t.Context(), cfg); failure.ClassOf(err) != failure.Config {
		t.Errorf("with at_least_once: %v", err)
	}
	cfg.Sink.Kafka.Delivery = "exactly_once"
	list := func() (ids []string) {
		t.Helper()
		for _, tx := range must.Get(OpenTransactions(t.Context(), cfg))(t) {
			ids = append(ids, tx.ID)
			if tx.State != "Ongoing" || tx.Topics[0] != "t" || tx.Ours != (tx.ID != "other") {
				t.Errorf("%+v", tx)
			}
		}
		return ids
	}
	if got := list(); len(got) > 0 {
		t.Errorf("%v are open before any", got)
	}
	ours := must.Get(wiring.TransactionalID(cfg))(t)
	for _, id := range []string{ours, "other"} {
		client := b.Client(t, kgo.TransactionalID(id))
		must.OK(t, client.BeginTransaction())
		must.OK(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr())
	}
	if got := list(); len(got) != 2 {
		t.Errorf("%v are open, want both", got)
	}
	wantHanging(t, cfg)
	if _, err := AbortTransaction(t.Context(), cfg, false); failure.RemedyOf(err) != "repeat it with --yes" {
		t.Errorf("abort without yes: %v", err)
	}
	aborted := must.Get(AbortTransaction(context.Background(), cfg, true))(t)
	if len(aborted) != 1 || !aborted[0].Aborted || aborted[0].ID != ours {
		t.Errorf("aborted %+v", aborted)
	}
	if got := list(); len(got) != 1 || got[0] != "other" {
		t.Errorf("%v are open, want the other's", got)
	}
}

// withTransactions is the configuration of a pipeline writing to b in transactions.
func withTransactions(b *kafkatest.Broker) *config.Config {
	cfg := config.Default()
	cfg.Source.URL, cfg.Source.Slot = "postgres://cdc@localhost/app", "s"
	cfg.Sink.Kafka.Brokers, cfg.Sink.Kafka.Delivery = b.Brokers, "exactly_once"
	return &cfg
}

// wantHanging wants the open transaction to hang for a caller without a coordinator's
// list, but not while the transaction may just have begun.
func wantHanging(t *testing.T, cfg *config.Config) {
	t.Helper()
	c, _, err := transactional(t.Context(), cfg)
	must.OK(t, err)
	defer c.client.Close()
	hanging := must.Get(c.hanging(t.Context(), nil, 0))(t)
	if len(hanging) != 2 || hanging[0].State != "Hanging" || !strings.Contains(hanging[0].Remedy, "cdc-outbox txn abort --topic t --partition 0 --start-offset 0 --yes") {
		t.Fatalf("%+v hang, want two in topic t", hanging)
	}
	var out strings.Builder
	must.OK(t, hanging.WriteText(&out))
	if !strings.Contains(out.String(), hanging[1].Remedy) || !strings.Contains(out.String(), "may not describe") {
		t.Errorf("the report does not say what ends it, or that its owner may be hidden: %s", &out)
	}
	if young := must.Get(c.hanging(t.Context(), nil, time.Hour))(t); len(young) > 0 {
		t.Errorf("%+v hang, though they have just begun", young)
	}
	if known := must.Get(c.hanging(t.Context(), []int64{0, 1, 2, 3}, 0))(t); len(known) > 0 {
		t.Errorf("%+v hang, though coordinators know them", known)
	}
}

// Only the command shown ends a transaction unknown to all coordinators.
func TestHangingTransactionIsFoundAndAborted(t *testing.T) {
	b := kafkatest.Start(t, kafkatest.Apache(), kafkatest.Unverified())
	b.CreateTopic(t, "t", 1, nil)
	b.Hang(t, "t", time.Now())
	cfg := withTransactions(b)
	if open := must.Get(OpenTransactions(t.Context(), cfg))(t); len(open) > 0 {
		t.Errorf("%+v are open, though a coordinator knows of none, and it may just have begun", open)
	}
	c, _, err := transactional(t.Context(), cfg)
	must.OK(t, err)
	defer c.client.Close()
	hanging := must.Get(c.hanging(t.Context(), nil, 0))(t)
	if len(hanging) != 1 || hanging[0].Ours || !strings.Contains(hanging[0].Remedy, "cdc-outbox txn abort --topic t --partition 0 --start-offset 0 --yes") {
		t.Fatalf("%+v hang, want one in topic t", hanging)
	}
	at := Start{Topic: "t"}
	abort := func(silent time.Duration, yes bool) (Transactions, error) {
		return c.abortHanging(t.Context(), at, "ours", silent, yes)
	}
	if _, err := abort(time.Hour, true); failure.ClassOf(err) != failure.Config || !strings.Contains(err.Error(), "just have begun") {
		t.Errorf("abort of one that may have just begun: %v", err)
	}
	if shown, err := abort(0, false); failure.RemedyOf(err) != "repeat it with --yes" || len(shown) != 1 || shown[0].Aborted {
		t.Errorf("abort without yes: %+v, %v", shown, err)
	}
	wantStable := func(want int64) {
		t.Helper()
		stable := must.Get(kadm.NewClient(c.client).ListCommittedOffsets(t.Context(), "t"))(t)
		if got, _ := stable.Lookup("t", 0); got.Offset != want {
			t.Errorf("consumers see what is before offset %d, want %d", got.Offset, want)
		}
	}
	wantStable(0)
	aborted := must.Get(abort(0, true))(t)
	var out strings.Builder
	must.OK(t, aborted.WriteText(&out))
	if len(aborted) != 1 || !aborted[0].Aborted || !strings.Contains(out.String(), "in [t]; aborted now\n") {
		t.Errorf("aborted %+v: %s", aborted, &out)
	}
	wantStable(2) // the record, and the end of its transaction
	if _, err := abort(0, true); failure.ClassOf(err) != failure.Config || !strings.Contains(err.Error(), "no open transaction begins at offset 0") {
		t.Errorf("abort of what has ended: %v", err)
	}
}

// A partition must not be ended alone while a coordinator has the transaction open.
func TestTransactionThatDoesNotHangIsNotAborted(t *testing.T) {
	f := &fixture{Config: withTransactions(&kafkatest.Broker{}), t: t}
	acl := func(kind kmsg.ACLResourceType, name string, op kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kind, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true}
	}
	read := acl(kmsg.ACLResourceTypeTopic, "t", kmsg.ACLOperationRead)
	state := acl(kmsg.ACLResourceTypeTopic, broker.TransactionTopic, kmsg.ACLOperationDescribe)
	f.withKafka(kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "t"), kfake.Superuser("PLAIN", "admin", "pw"),
		kfake.User("PLAIN", "blind", "pw"), kfake.User("PLAIN", "half-blind", "pw", read),
		kfake.User("PLAIN", "reader", "pw", read, state),
		kfake.User("PLAIN", "knows", "pw", read, state, acl(kmsg.ACLResourceTypeTransactionalId, "other", kmsg.ACLOperationDescribe)))
	exactlyOnce(f)
	as := func(user string) sink.SASL { return sink.SASL{Mechanism: "PLAIN", Username: user, Password: "pw"} }
	abort := func(user, ours string) error {
		t.Helper()
		f.Sink.Kafka.SASL = as(user)
		c := newCluster(f.Config)
		must.OK(t, c.connect(t.Context()))
		defer c.client.Close()
		_, err := c.abortHanging(t.Context(), Start{Topic: "t"}, ours, 0, true)
		if failure.ClassOf(err) != failure.Config {
			t.Errorf("as %s: %v, want a configuration error", user, err)
		}
		return err
	}
	f.Sink.Kafka.SASL = as("admin")
	owner := must.Get(kgo.NewClient(append(must.Get(sink.ClientOpts(*f.Sink.Kafka))(t), kgo.TransactionalID("other"))...))(t)
	defer owner.Close()
	must.OK(t, owner.BeginTransaction())
	must.OK(t, owner.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr())

	for _, tt := range []struct{ user, ours, words, remedy string }{
		{"blind", "", "TOPIC_AUTHORIZATION_FAILED", "--allow-principal 'User:blind' --operation Read --topic 't'"},
		{"half-blind", "", "TOPIC_AUTHORIZATION_FAILED", "--allow-principal 'User:half-blind' --operation Describe --topic '__transaction_state'"},
		{"reader", "", "CLUSTER_AUTHORIZATION_FAILED", "--allow-principal 'User:reader' --operation ClusterAction --cluster"},
		{"knows", "", `open under the transactional id "other"`, "stop or restart the program"},
		{"knows", "other", `open under the transactional id "other"`, "cdc-outbox txn abort --yes"},
	} {
		err := abort(tt.user, tt.ours)
		must.Contain(t, err.Error(), tt.words)
		must.Contain(t, failure.RemedyOf(err), tt.remedy)
	}
	must.OK(t, owner.EndTransaction(t.Context(), kgo.TryCommit)) // the transaction is still whole
}

// An absent coordinator tells of none of its transactions. They are well.
func TestE2ETransactionWithoutItsCoordinatorIsNotAborted(t *testing.T) {
	b := kafkatest.StartCluster(t, []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"},
		kafkatest.Setting("transaction.state.log.replication.factor", "1"), kafkatest.Setting("transaction.state.log.min.isr", "1"))
	b.CreateTopic(t, "t", 1, nil)
	owner := must.Get(kgo.NewClient(kgo.SeedBrokers(b.Brokers...), kgo.TransactionalID("other"), kgo.TransactionTimeout(15*time.Minute)))(t)
	defer owner.Close()
	must.OK(t, owner.BeginTransaction())
	must.OK(t, owner.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr())
	node := b.Coordinator(t, "other")
	b.KillNode(t, node)

	c, _, err := transactional(t.Context(), withTransactions(b.Broker))
	must.OK(t, err)
	defer c.client.Close()
	await.Until(t, "the coordinator's partitions have no leader", func() bool {
		away, err := broker.CoordinatorsAway(t.Context(), c.client)
		return err == nil && away > 0
	})
	// Some brokers may not know yet, nor may the leader of the topic be another.
	await.Until(t, "an error about those of which nobody tells", func() bool {
		shown, err := c.hanging(t.Context(), nil, 0)
		if len(shown) > 0 {
			t.Fatalf("%v hangs", shown)
		}
		return isPartly(err)
	})
	await.Until(t, "the refusal to abort what may be well", func() bool {
		shown, err := c.abortHanging(t.Context(), Start{Topic: "t"}, "ours", 0, true)
		if err == nil {
			t.Fatalf("aborted %v", shown)
		}
		return strings.Contains(err.Error(), "have no leader")
	})
	b.ResumeNode(t, node)
	await.Until(t, "the coordinator's return", func() bool { // the client does not repeat a commit without an answer
		away, err := broker.CoordinatorsAway(t.Context(), c.client)
		return err == nil && away == 0
	})
	must.OK(t, owner.EndTransaction(t.Context(), kgo.TryCommit))
	b.Consume(t, []string{"t"}, kafkatest.Count(1))
}

// A partition without a leader tells of no transaction there. Those of others are listed
// all the same, and the error names the partition.
func TestE2ETransactionsBesideALeaderlessTopic(t *testing.T) {
	b := kafkatest.StartCluster(t, []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"})
	b.CreateTopic(t, "t", 1, nil)
	admin := kadm.NewClient(b.Client(t))
	must.Get(admin.CreateTopic(t.Context(), 3, 1, nil, "single"))(t)
	cfg := withTransactions(b.Broker)
	leader := int32(-1)
	leads := func() bool {
		topics, err := admin.ListTopics(t.Context(), "single")
		p, ok := topics["single"].Partitions[1]
		leader = p.Leader
		return err == nil && ok && leader >= 0
	}
	await.Until(t, "the partition has a leader", leads)
	b.KillNode(t, int(leader))
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(b.Brokers...), kgo.TransactionalID("other"), kgo.TransactionTimeout(15*time.Minute)))(t)
	defer client.Close()
	must.OK(t, client.BeginTransaction())
	must.OK(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr())
	await.Until(t, "it has none", func() bool { return !leads() && leader < 0 })
	open, err := OpenTransactions(t.Context(), cfg)
	if len(open) != 1 || open[0].ID != "other" {
		t.Errorf("%+v are listed, want the other's", open)
	}
	if !isPartly(err) || !strings.Contains(err.Error(), `topic "single", partitions [1]`) || failure.ClassOf(err) != failure.Transient ||
		!strings.Contains(failure.RemedyOf(err), "--unavailable-partitions") {
		t.Errorf("error %v, remedy %q", err, failure.RemedyOf(err))
	}
	if _, err := AbortTransaction(t.Context(), cfg, true); !isPartly(err) {
		t.Errorf("abort of ours, which is not there: %v", err)
	}
	must.OK(t, client.EndTransaction(t.Context(), kgo.TryCommit))
}

// The transactions in consumers' way, and the way to end them, are in the
// status, of any program.
func TestStatusNamesTransactionsThatHoldConsumersBack(t *testing.T) {
	all := Transactions{
		{ID: "young", Age: settled - time.Second, Topics: []string{"t"}},
		{ID: "ours", Ours: true, Age: settled, Topics: []string{"t"}},
		{ID: "producer 7/0", Age: time.Hour, Topics: []string{"t"}, Remedy: "kafka-transactions.sh abort"},
	}
	r := StatusReport{Transactions: all.long()}
	shown := text(t, &r)
	must.Contain(t, shown, "transaction  ours has held consumers back for 1m0s, in [t]", "-> cdc-outbox txn abort --yes",
		"producer 7/0 has held", "-> kafka-transactions.sh abort")
	if strings.Contains(shown, "young") {
		t.Errorf("one that may be well is named:\n%s", shown)
	}
	cfg := withTransactions(&kafkatest.Broker{Brokers: []string{"127.0.0.1:1"}}) // nobody listens there
	if r.askTransactions(t.Context(), cfg); r.TransactionsError == nil {
		t.Error("brokers that do not answer are not named")
	}
	cfg.Sink.Kafka.Delivery, r = "at_least_once", StatusReport{}
	if r.askTransactions(t.Context(), cfg); r.TransactionsError != nil {
		t.Errorf("without transactions: %+v", r.TransactionsError)
	}
}
