package pipeline

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/registry"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Failure mode 198. The registry is down at the start, then lacks the schema, then goes away
// for good: events wait visibly, in order, and a known schema stays known.
func TestEventsWaitForTheirSchema(t *testing.T) {
	avroSchema := sr.Schema{Schema: `{"type":"record","name":"Order","fields":[{"name":"n","type":"int"}]}`}
	protobufSchema := sr.Schema{Schema: `syntax = "proto3"; message Other {} message Order { sint32 n = 1; }`, Type: sr.TypeProtobuf}
	jsonSchema := sr.Schema{Schema: `{"properties":{"n":{"type":"integer"}}}`, Type: sr.TypeJSON}
	for _, c := range []struct {
		name, mode, delivery, format string
		schema                       sr.Schema
		values                       []string
	}{
		{"at least once", config.ModeWAL, sink.DeliveryAtLeastOnce, registry.FormatAvro, avroSchema, []string{"\x02", "\x04", "\x06"}},
		{"exactly once", config.ModeWAL, sink.DeliveryExactlyOnce, registry.FormatProtobuf, protobufSchema, []string{"\x02\x02\x08\x02", "\x02\x02\x08\x04", "\x02\x02\x08\x06"}},
		{"polling", config.ModePoll, sink.DeliveryAtLeastOnce, registry.FormatJSONSchema, jsonSchema, []string{`{"n": 1}`, `{"n": 2}`, `{"n": 3}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			schemas := srfake.NewRegistry()
			var down atomic.Bool
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if down.Load() {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				schemas.Handler().ServeHTTP(w, r)
			}))
			t.Cleanup(server.Close)
			cfg, broker, db := inMode(t, "schemas", c.mode)
			broker.CreateTopic(t, "outbox.event.order", 1, nil)
			broker.CreateTopic(t, "outbox.dead-letter", 1, nil)
			cfg.Sink.Kafka.Delivery = c.delivery
			if c.delivery == sink.DeliveryExactlyOnce {
				cfg.Source.Slot += "_once"
				cfg.Checkpoint = store.DefaultOptions()
			}
			if c.mode == config.ModePoll {
				cfg.Checkpoint.Store = store.StoreNone
			}
			cfg.Errors.OnBadEvent = transform.BadEventDeadLetter
			cfg.Encoding.Registry.URLs = []string{server.URL}
			if cfg.Encoding.Value.Format = c.format; c.format == registry.FormatProtobuf {
				cfg.Encoding.Value.Message = "Order"
			}
			insert := func(payload string) {
				pgtest.Exec(t, db, fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', 'o-1', 'Placed', '%s')`, payload))
			}

			down.Store(true)
			r := start(t, cfg)
			unready := func(why string) {
				t.Helper()
				await.Until(t, "readiness to tell "+why, func() bool {
					n, text := get(r.base + "/readyz")
					return n == http.StatusServiceUnavailable && strings.Contains(text, why)
				})
				await.Until(t, "the metric", r.shows(`cdc_outbox_connected{side="registry"} 0`))
			}
			unready("the schema registry answers 503 to GET")
			down.Store(false)
			await.Until(t, "readiness", r.ready)

			insert(`{"n": 1}`)
			unready("an event waits for its schema: the schema registry answers 404")
			if text := body(r.base + "/status"); !strings.Contains(text, "schema_error") || !strings.Contains(text, "register a schema under subject outbox.event.order-value") {
				t.Errorf("/status = %s", text)
			}
			insert(`{"n": "x"}`)
			insert(`{"n": 2}`)
			id, _, err := schemas.RegisterSchema("outbox.event.order-value", c.schema)
			must.OK(t, err)
			await.Until(t, "readiness again", r.ready)
			await.Until(t, "the metric", r.shows(`cdc_outbox_connected{side="registry"} 1`))
			down.Store(true)
			insert(`{"n": 3}`)

			read := func(topic string, n int) (values []string) {
				for _, rec := range broker.Consume(t, []string{topic}, func(all []*kgo.Record) bool { return len(all) >= n }) {
					values = append(values, string(rec.Value))
				}
				return values
			}
			frame := fmt.Sprintf("\x00\x00\x00\x00%c", id)
			if got, want := read("outbox.event.order", 3), []string{frame + c.values[0], frame + c.values[1], frame + c.values[2]}; !slices.Equal(got, want) {
				t.Errorf("values %q, want %q", got, want)
			}
			if got := read("outbox.dead-letter", 1); !slices.Equal(got, []string{`{"n": "x"}`}) {
				t.Errorf("dead letters %q", got)
			}
			must.OK(t, r.stop())
		})
	}
}
