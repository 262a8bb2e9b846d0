package broker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestQuestionsAboutATopic(t *testing.T) {
	ctx, client := t.Context(), kafkatest.Start(t).Client(t)
	if _, err := broker.Topic(ctx, client, "orders"); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Fatalf("a topic that does not exist: %v", err)
	}
	if _, err := broker.TopicSettings(ctx, client, "orders"); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("settings of a topic that does not exist: %v", err)
	}
	orders := broker.NewTopic{Name: "orders", Partitions: 2, Replicas: 1, Settings: map[string]string{"retention.ms": "60000"}}
	if tried := must.Get(broker.TryTopic(ctx, client, orders, time.Minute))(t); tried.NumPartitions != 2 {
		t.Errorf("it would be created with %d partitions", tried.NumPartitions)
	}
	must.OK(t, broker.CreateTopic(ctx, client, orders, time.Minute))
	if err := broker.CreateTopic(ctx, client, orders, time.Minute); !errors.Is(err, kerr.TopicAlreadyExists) {
		t.Errorf("a topic that exists, created: %v", err)
	}

	found := must.Get(broker.Topic(ctx, client, "orders"))(t)
	if len(found.Partitions) != 2 || !broker.Permits(found.AuthorizedOperations, kmsg.ACLOperationWrite) {
		t.Errorf("%d partitions, operations %b", len(found.Partitions), found.AuthorizedOperations)
	}
	settings := must.Get(broker.TopicSettings(ctx, client, "orders", "retention.ms", "cleanup.policy"))(t)
	if ms := must.Get(settings.Number("retention.ms"))(t); ms != 60000 || settings["cleanup.policy"] != "delete" {
		t.Errorf("settings %s", settings)
	}
	if _, err := settings.Number("segment.ms"); err == nil {
		t.Error("a setting that was not asked for is a number")
	}
	each := must.Get(broker.EachTopic(ctx, client, []string{"orders", "payments"}, "retention.ms"))(t)
	if len(each) != 1 || each["orders"]["retention.ms"] != "60000" {
		t.Errorf("settings of one topic that exists and one that does not: %v", each)
	}
}

func TestNoTopicIsNotEveryTopic(t *testing.T) {
	b := kafkatest.Start(t)
	client := b.Client(t)
	b.CreateTopic(t, "orders", 1, nil)
	if of := must.Get(broker.Topics(t.Context(), client))(t); len(of.Topics) > 0 || len(of.Brokers) == 0 {
		t.Errorf("%d topics of %d brokers, asked for none", len(of.Topics), len(of.Brokers))
	}
	if of := must.Get(broker.AllTopics(t.Context(), client))(t); len(of.Topics) == 0 {
		t.Error("no topic, asked for all")
	}
	if _, err := broker.EachTopic(t.Context(), client, nil); err == nil {
		t.Error("the settings of no topic are an answer")
	}
}
