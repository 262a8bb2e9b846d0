package debezium

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/admin"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience bounds every wait, for slow and busy machines.
const patience = 2 * time.Minute

// relay is a connector of testdata before its table, with the record that Debezium
// makes of a row.
type relay struct {
	connector string
	sql       []string // table and row
	set       []string // what a person decides
	topic     string
	key       string
	value     string // "\x00" for none
	headers   []string
	partition int32 // -1: by the key
}

const id = "3f0a4a52-9b1e-4f6f-8a54-3b6d5a1c7e01"

// contextOf returns the headers with the connector in Debezium's records.
func contextOf(prefix string) []string {
	return []string{"__debezium.context.connectorLogicalName=" + prefix, "__debezium.context.taskId=0", "__debezium.context.connectorName=postgresql"}
}

// with adds headers to those of the context.
func with(prefix string, headers ...string) []string { return append(contextOf(prefix), headers...) }

var relays = []relay{
	{
		connector: "routed-by-column",
		sql: []string{`CREATE SCHEMA clinic`, `CREATE TABLE clinic.patient_outbox (id uuid PRIMARY KEY, aggregate_id text, event_type text, payload jsonb, destination text)`,
			`INSERT INTO clinic.patient_outbox VALUES ('` + id + `', 'p-1', 'Admitted', '{"ward": "b"}', 'clinic.admissions')`},
		topic: "clinic.admissions", key: "p-1", value: `"{\"ward\": \"b\"}"`, headers: with("clinic", "id="+id), partition: -1,
	},
	{
		connector: "django",
		sql: []string{`CREATE TABLE events_outboxitem (id uuid PRIMARY KEY, timestamp timestamptz, event_type text, source text, content_type text, message_key text, topic text, payload bytea)`,
			`INSERT INTO events_outboxitem VALUES ('` + id + `', '2026-01-02 03:04:05.678901+00', 'person.joined', 'urn:people', 'application/avro', 'k-9', 'people.events', '\x00010203')`},
		topic: "people.events", key: "k-9", value: "\x00\x01\x02\x03",
		headers:   with("people-service", "id="+id, "ce_id="+id, "ce_time=2026-01-02T03:04:05.678901Z", "ce_type=person.joined", "ce_source=urn:people", "content-type=application/avro"),
		partition: -1,
	},
	{
		connector: "document-store",
		sql: []string{`CREATE SCHEMA events`, `CREATE TABLE events.doc_outboxmessage (id uuid PRIMARY KEY, data jsonb, kind_of_message text)`,
			`INSERT INTO events.doc_outboxmessage VALUES ('` + id + `', '{"Id": 1}', 'Shop.Ordered')`},
		topic: "documents.events", key: "Shop.Ordered", value: `{"Id": 1}`, headers: with("documents", "id="+id, "eventType=Shop.Ordered"), partition: -1,
	},
	{
		connector: "event-store",
		sql: []string{`CREATE SCHEMA store`, `CREATE TABLE store.events (event_number bigserial PRIMARY KEY, event_id uuid, partition_key text, event_envelope json, topic_route text)`,
			`INSERT INTO store.events (event_id, partition_key, event_envelope, topic_route) VALUES ('` + id + `', 'a/1', '{"b":1,  "a":2}', 'ignored')`},
		topic: "event-store.events.v1", key: "a/1", value: `{"b":1,  "a":2}`, headers: with("event-store", "id="+id), partition: -1,
	},
	{
		connector: "predicate-and-heartbeat",
		sql: []string{`CREATE TABLE audit (id int PRIMARY KEY)`, `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregateid text, topic text, type text, payload text)`,
			`INSERT INTO outbox VALUES ('` + id + `', 'o-7', 'shop.orders', 'com.example.Ordered', 'plain')`},
		topic: "shop.orders", key: "o-7", value: "plain", headers: with("shop-db", "id="+id, "__TypeId__=com.example.Ordered"), partition: -1,
	},
	{
		connector: "exchange-by-tls",
		sql: []string{`CREATE TABLE outbox_events (id uuid PRIMARY KEY, partition_key text, message jsonb, occurred_at timestamptz, topic text)`,
			`INSERT INTO outbox_events VALUES ('` + id + `', 'BTC', '{"price": 1.50, "note": null, "tags": []}', now(), 'exchange.trades')`},
		topic: "exchange.trades", key: "BTC", value: `{"note":null,"tags":[],"price":1.5}`, headers: with("exchange.cdc", "id="+id), partition: -1,
	},
	{
		connector: "strimzi-secrets",
		sql: []string{`CREATE SCHEMA hbi`, `CREATE TABLE hbi.outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, operation text, version text, payload jsonb)`,
			`INSERT INTO hbi.outbox VALUES ('` + id + `', 'hosts', 'h-1', 'created', 'v2', '{"name": "a", "gone": null}')`},
		topic: "outbox.event.hosts", key: "h-1", value: `{"name":"a"}`, headers: with("hosts", "id="+id, "operation=created", "schema=v2"), partition: -1,
	},
	{
		connector: "strimzi-accounts",
		sql: []string{`CREATE TABLE outboxevent (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb)`,
			`INSERT INTO outboxevent VALUES ('` + id + `', 'Account', '17', 'Opened', '{"n": 1}')`},
		topic: "accounts.Account.events", key: "17", value: `{"n": 1}`, headers: with("accounts", "id="+id, "eventType=Opened"), partition: -1,
		set: []string{"sink.kafka.replication_factor=1"},
	},
	{
		connector: "server-to-kafka",
		sql: []string{`CREATE TABLE outbox (id uuid PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, shard int, created_at timestamptz, payload text)`,
			`INSERT INTO outbox VALUES ('` + id + `', 'cart', 'c-1', 'Filled', 3, '2020-01-01', '{}')`},
		topic: "cart.events", key: "c-1", value: `{}`, headers: with("carts", "id="+id, "event_type=Filled"), partition: -1,
	},
	{
		connector: "envelope-and-partition",
		sql: []string{`CREATE SCHEMA billing`, `CREATE TABLE billing.outbox_a (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, tenant text, shard int, schema_version int, tracingspancontext text, payload jsonb)`,
			`CREATE TABLE billing.outbox_b (LIKE billing.outbox_a INCLUDING ALL)`,
			`INSERT INTO billing.outbox_b VALUES ('` + id + `', 'invoice', 'i-1', 'Sent', 't-1', 2, 4, NULL, '{"n": 1}')`},
		topic: "outbox.event.invoice", key: "i-1", value: `{"payload":"{\"n\": 1}","eventType":"Sent"}`, headers: []string{"id=" + id, "tenant=t-1"}, partition: 2,
	},
	{
		connector: "of-the-worker",
		sql: []string{`CREATE TABLE outbox_event (event_id uuid PRIMARY KEY, message_key text, topic_name text, payload text)`,
			`INSERT INTO outbox_event VALUES ('` + id + `', 'EURUSD', 'trades.done', '1.0832')`},
		topic: "trades.done", key: "EURUSD", value: "1.0832", headers: with("trades", "id="+id), partition: -1,
	},
	{
		connector: "plain-over-tls",
		sql: []string{`CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text)`,
			`INSERT INTO outbox VALUES ('` + id + `', 'Refund', '9', 'Refunded', '  ')`},
		topic: "orders.Refund", key: "9", value: "\x00", headers: with("orders", "id="+id), partition: -1,
		set: []string{"sink.kafka.replication_factor=1"},
	},
	{
		connector: "java-stores",
		sql: []string{`CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload bytea)`,
			`INSERT INTO outbox VALUES ('` + id + `', 'entry', '5', 'Booked', '\xff00')`},
		topic: "outbox.event.entry", key: "5", value: "\xff\x00", headers: with("ledger", "id="+id), partition: -1,
	},
	{
		connector: "oauth",
		sql: []string{`CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text)`,
			`INSERT INTO outbox VALUES ('` + id + `', 'claim', '', 'Filed', 'text')`},
		topic: "outbox.event.claim", key: "", value: "text", headers: with("claims", "id="+id), partition: -1,
	},
	{
		connector: "bytes-with-delegate",
		sql: []string{`CREATE TABLE outboxevent (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text)`,
			`INSERT INTO outboxevent VALUES ('` + id + `', 'User', '1', 'Joined', '{ "phones": [ {"type": "mobile"} ] }')`},
		topic: "users.events", key: "1", value: `{"phones":[{"type":"mobile"}]}`, headers: with("users", "id="+id), partition: -1,
		set: []string{"source.tables=public.outboxevent"},
	},
	{
		connector: "json-keys",
		sql: []string{`CREATE TABLE outboxevent (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb)`,
			`INSERT INTO outboxevent VALUES ('` + id + `', 'Invoice', 'i-4', 'Paid', '{"n": 1}')`},
		topic: "outbox.event.Invoice", key: `"i-4"`, value: `"{\"n\": 1}"`, headers: with("invoices", "id="+id, "eventType=Paid"), partition: -1,
	},
	{
		connector: "server-by-environment",
		sql: []string{`CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text)`,
			`INSERT INTO outbox VALUES ('` + id + `', 'booking', 'b-2', 'Booked', 'text')`},
		topic: "outbox.event.booking", key: `"b-2"`, value: `"text"`, headers: with("bookings", "id="+id), partition: -1,
	},
	{
		connector: "with-schemas",
		sql: []string{`CREATE SCHEMA cart_schema`, `CREATE TABLE cart_schema.outbox (id text PRIMARY KEY, destination text, aggregateid text, type text, payload text)`,
			`INSERT INTO cart_schema.outbox VALUES ('c-8', 'carts', 'c', 'Filled', '{"n": "one"}')`},
		topic: "outbox.event.carts", key: `{"schema":{"type":"string","optional":false},"payload":"c-8"}`,
		value:   `{"schema":{"type":"struct","fields":[{"type":"string","optional":true,"field":"n"}],"optional":true,"name":"payload"},"payload":{"n":"one"}}`,
		headers: with("carts", "id=c-8"), partition: -1,
	},
}

// The configuration of a connector publishes the record that Debezium would: the slot
// is taken over, or made where it cannot be.
func TestTheResultsRun(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a connector for each")
	}
	for _, c := range relays {
		t.Run(c.connector, func(t *testing.T) {
			db, broker := pgtest.Shared(t).NewDatabase(t), kafkatest.Start(t)
			cfg := configuration(t, c, db, broker.Brokers[0])
			broker.CreateTopic(t, c.topic, 4, nil)
			pgtest.Exec(t, db, c.sql[:len(c.sql)-1]...)
			if cfg.Source.Create {
				must.Get(admin.Setup(t.Context(), cfg, admin.SetupOptions{}))(t)
			} else {
				takeOver(t, cfg, db)
			}
			run(t, cfg, func() {
				pgtest.Exec(t, db, c.sql[len(c.sql)-1])
				c.expect(t, broker.Consume(t, []string{c.topic}, kafkatest.Count(1))[0])
			})
		})
	}
}

// configuration is the connector's, in front of the test's servers.
func configuration(t *testing.T, c relay, db, broker string) *config.Config {
	t.Helper()
	r := translated(t, filepath.Join("testdata/connectors", c.connector))
	maps.DeleteFunc(r.settings, func(key string, _ any) bool {
		return strings.HasPrefix(key, "source.url") || strings.HasPrefix(key, "source.password") || strings.HasPrefix(key, tlsKey) || strings.HasPrefix(key, saslKey)
	})
	set := append([]string{"source.url=" + db, "sink.kafka.brokers=" + broker, "http.listen=", "log.level=info"}, c.set...)
	cfg := must.Get(config.Load(config.Options{File: c.connector, Text: written(t, r), Set: set,
		Environ: []string{"KAFKA_BROKERS=" + broker}}))(t)
	t.Cleanup(func() {
		pgtest.Exec(t, db, fmt.Sprintf("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '%s' AND NOT active", cfg.Source.Slot))
	})
	return cfg
}

// takeOver makes publication and slot as Debezium does, and adopts the slot.
func takeOver(t *testing.T, cfg *config.Config, db string) {
	t.Helper()
	var tables []string
	for _, table := range cfg.Source.Tables {
		tables = append(tables, table.Quoted())
	}
	pgtest.Exec(t, db, fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE %s", cfg.Source.Publication, strings.Join(tables, ", ")))
	pgtest.Exec(t, db, fmt.Sprintf("SELECT pg_create_logical_replication_slot('%s', 'pgoutput')", cfg.Source.Slot))
	must.Get(admin.Adopt(t.Context(), cfg, admin.AdoptOptions{Yes: true}))(t)
}

// run runs the connector until do returns.
func run(t *testing.T, cfg *config.Config, do func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- pipeline.Run(ctx, pipeline.Options{Config: cfg, Log: zap.NewNop(), Stdout: io.Discard})
	}()
	defer func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("run: %v", err)
			}
		case <-time.After(patience):
			t.Error("run does not end")
		}
	}()
	do()
}

func (c relay) expect(t *testing.T, r *kgo.Record) {
	t.Helper()
	var headers []string
	for _, h := range r.Headers {
		headers = append(headers, h.Key+"="+string(h.Value))
	}
	value := string(r.Value)
	if r.Value == nil {
		value = "\x00"
	}
	if r.Topic != c.topic || string(r.Key) != c.key || value != c.value || !slices.Equal(headers, c.headers) {
		t.Errorf("%s: key %q, value %q, headers %q\nwant %s: key %q, value %q, headers %q", r.Topic, r.Key, value, headers, c.topic, c.key, c.value, c.headers)
	}
	if c.partition >= 0 && r.Partition != c.partition {
		t.Errorf("partition %d, want %d", r.Partition, c.partition)
	}
}
