package main

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestRun(t *testing.T) {
	url, broker := pgtest.Shared(t).NewDatabase(t), kafkatest.Start(t)
	pgtest.Exec(t, url, `CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text DEFAULT 'order',
		aggregateid text DEFAULT '1', type text DEFAULT 'OrderPlaced', payload jsonb DEFAULT '{}')`, `INSERT INTO outbox DEFAULT VALUES`)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { // ends with ctx
		ended <- run(ctx, []string{"DATABASE_URL=" + url, "KAFKA_BROKER=" + broker.Brokers[0]})
	}()
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(broker.Brokers...), kgo.ConsumeTopics("outbox.event.order")))(t)
	defer client.Close()
	for event := (*kgo.Record)(nil); event == nil && ctx.Err() == nil; {
		select {
		case err := <-ended:
			t.Fatal(err)
		default:
		}
		polling, cancel := context.WithTimeout(ctx, time.Second)
		client.PollFetches(polling).EachRecord(func(r *kgo.Record) { event = r })
		cancel()
	}
	stop()
	must.OK(t, <-ended)
}
