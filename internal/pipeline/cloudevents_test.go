package pipeline

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/admin"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/registry"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// CloudEvents come from each source, in both deliveries; a row that cannot be an event is a
// dead letter in the row's own form.
func TestCloudEventsOfEachSource(t *testing.T) {
	for _, c := range []struct{ mode, delivery, content string }{
		{config.ModeWAL, sink.DeliveryAtLeastOnce, transform.CloudEventsStructured},
		{config.ModeWAL, sink.DeliveryExactlyOnce, transform.CloudEventsBinary},
		{config.ModePoll, sink.DeliveryAtLeastOnce, transform.CloudEventsBinary},
		{config.ModeMessage, sink.DeliveryAtLeastOnce, transform.CloudEventsStructured},
	} {
		t.Run(c.mode+" "+c.delivery+" "+c.content, func(t *testing.T) {
			cfg, broker, db := inMode(t, "cloudevents_"+c.delivery, c.mode)
			broker.CreateTopic(t, "outbox.event.order", 1, nil)
			broker.CreateTopic(t, "outbox.dead-letter", 1, nil)
			cfg.Sink.Kafka.Delivery = c.delivery
			cfg.Errors.OnBadEvent = transform.BadEventDeadLetter
			cfg.Event.CloudEvents = transform.CloudEvents{Mode: c.content, Source: "/orders"}
			insert := `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', 'o-1', '%s', '%s')`
			switch {
			case c.delivery == sink.DeliveryExactlyOnce:
				cfg.Checkpoint = store.DefaultOptions()
			case c.mode == config.ModePoll:
				cfg.Checkpoint.Store = store.StoreNone
			case c.mode == config.ModeMessage:
				cfg.Source.Tables = nil
				must.Get(admin.Setup(t.Context(), &config.Config{Source: cfg.Source, Event: cfg.Event, Sink: cfg.Sink, Checkpoint: cfg.Checkpoint}, admin.SetupOptions{}))(t)
				insert = `SELECT outbox_emit('order', 'o-1', '%s', '%s', '{}', gen_random_uuid())`
			}
			r := start(t, cfg)
			r.active(t)
			pgtest.Exec(t, db, fmt.Sprintf(insert, "a\tb", `{"n": 0}`), fmt.Sprintf(insert, "Placed", `{"n": 1}`))

			rec := broker.Consume(t, []string{"outbox.event.order"}, kafkatest.Count(1))[0]
			id, _ := transform.Header(rec.Headers, "id")
			got := attributesOf(t, rec)
			for name, want := range map[string]string{"specversion": "1.0", "id": string(id), "source": "/orders", "type": "Placed", "subject": "o-1", "partitionkey": "o-1", "datacontenttype": "application/json"} {
				if got[name] != want {
					t.Errorf("%s is %q, want %q, of %v", name, got[name], want, got)
				}
			}
			if got["time"] == "" {
				t.Error("no time")
			}
			letter := broker.Consume(t, []string{"outbox.dead-letter"}, kafkatest.Count(1))[0]
			reason, _ := transform.Header(letter.Headers, "cdc-dlq-reason")
			if _, is := transform.Header(letter.Headers, "content-type"); is || string(reason) != "invalid_cloudevent" || string(letter.Value) != `{"n": 0}` {
				t.Errorf("dead letter %s of reason %s, a CloudEvent: %t", letter.Value, reason, is)
			}
			must.OK(t, r.stop())
		})
	}
}

// attributesOf reads a CloudEvent of either mode, with data as an attribute.
func attributesOf(t *testing.T, rec *kgo.Record) map[string]string {
	t.Helper()
	attributes := map[string]string{"data": string(rec.Value)}
	contentType, _ := transform.Header(rec.Headers, "content-type")
	if string(contentType) != "application/cloudevents+json; charset=UTF-8" {
		attributes["datacontenttype"] = string(contentType)
		for _, h := range rec.Headers {
			if name, is := strings.CutPrefix(h.Key, "ce_"); is {
				attributes[name] = string(h.Value)
			}
		}
		return attributes
	}
	var members map[string]json.RawMessage
	must.OK(t, json.Unmarshal(rec.Value, &members))
	for name, value := range members {
		attributes[name] = strings.Trim(string(value), `"`)
	}
	return attributes
}

// With a registry, dataschema names the schema of the bytes.
func TestCloudEventsOfASchema(t *testing.T) {
	schemas := srfake.NewRegistry()
	server := httptest.NewServer(schemas.Handler())
	t.Cleanup(server.Close)
	id, _, err := schemas.RegisterSchema("outbox.event.order-value", sr.Schema{Schema: `{"type":"record","name":"Order","fields":[{"name":"n","type":"int"}]}`})
	must.OK(t, err)
	cfg, broker, db := inMode(t, "cloudevents_schema", config.ModeWAL)
	broker.CreateTopic(t, "outbox.event.order", 1, nil)
	loaded := must.Get(config.Load(config.Options{Set: []string{
		"source.url=" + db, "event.cloudevents.mode=binary", "event.cloudevents.source=/orders", "encoding.value.format=avro", "encoding.registry.urls=" + server.URL,
	}}))(t)
	cfg.Event.CloudEvents, cfg.Encoding = loaded.Event.CloudEvents, loaded.Encoding
	r := start(t, cfg)
	r.active(t)
	pgtest.Exec(t, db, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', 'o-1', 'Placed', '{"n": 1}')`)
	got := attributesOf(t, broker.Consume(t, []string{"outbox.event.order"}, kafkatest.Count(1))[0])
	if want := fmt.Sprintf("%s/schemas/ids/%d", server.URL, id); got["dataschema"] != want || got["datacontenttype"] != "application/"+registry.FormatAvro || got["data"] != fmt.Sprintf("\x00\x00\x00\x00%c\x02", id) {
		t.Errorf("%v, want the schema %s", got, want)
	}
	must.OK(t, r.stop())
}
