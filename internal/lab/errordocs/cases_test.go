package errordocs

import (
	"net/url"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
)

// badInput is a single row of the table.
type badInput struct {
	input   string // the fault, for the reader
	offline bool   // the program connects to nothing
	// prepare breaks the sound environment, which has the outbox table.
	prepare func(*environment)
	args    []string // default: run
	set     []string // key=value on top of the sound configuration
	// goesOn tells that the program does not end, as the trouble may pass; what
	// the user sees is then the log, where this is the message.
	goesOn string
	// until is the last major version of PostgreSQL that minds; default: all do.
	until int
}

// dropSlot drops the slot once the server knows that its reader has ended.
var dropSlot = []string{
	`DO $$ BEGIN
		WHILE EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = 'cdc_outbox' AND active) LOOP PERFORM pg_sleep(0.01); END LOOP;
	END $$`,
	`SELECT pg_drop_replication_slot('cdc_outbox')`,
}

var badInputs = []badInput{
	{input: "unknown verb", offline: true, args: []string{"rum"}},
	{input: "unknown flag", offline: true, args: []string{"run", "--confg", "x"}},
	{input: "unknown configuration key", offline: true, prepare: func(e *environment) { e.more = "errors:\n  on_bad_evnt: skip\n" }},
	{input: "value that no key allows", offline: true, prepare: func(e *environment) { e.more = "errors:\n  on_bad_event: ignore\n" }},
	{input: "`delivery: exactly_once` with polling", offline: true, set: []string{"sink.kafka.delivery=exactly_once", "source.mode=poll"}},
	{input: "`transaction_boundaries` without `exactly_once`", offline: true, set: []string{"sink.kafka.transaction_boundaries=true"}},
	{input: "missing secret file", offline: true, prepare: func(e *environment) { e.url = "${file:/run/secrets/no-such-url}" }},
	{input: "regex that Go cannot express", offline: true, prepare: func(e *environment) { e.more = "route:\n  regex: '(?!x).*'\n" }},

	{input: "`import` of another database's connector", offline: true, args: []string{"import", "debezium", "testdata/import/mysql.json"}},
	{input: "`import` of a connector without the outbox event router", offline: true, args: []string{"import", "debezium", "testdata/import/changes.json"}},
	{input: "`import` of Avro", offline: true, args: []string{"import", "debezium", "testdata/import/avro.json", "--no-check"}},

	{input: "wrong password", prepare: func(e *environment) {
		e.change(func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), "wrong") })
	}},
	{input: "unknown host", prepare: func(e *environment) { e.url = "postgres://cdc@" + unknownHost + "/app" },
		goesOn: "PostgreSQL session ended, will reconnect"},
	{input: "`sslmode=require`, and the server has no TLS", prepare: func(e *environment) { e.url += "?sslmode=require" }},
	{input: "parameter in `source.url` that nobody knows", prepare: func(e *environment) { e.url += "?foo=bar" }},
	{input: "`sink.stdout` without a standard output", offline: true, args: []string{"run", "--set", "source.url=postgres://cdc@localhost/app", "--set", "sink.stdout=true"}},
	{input: "unknown database", prepare: func(e *environment) { e.change(func(u *url.URL) { u.Path = "/nowhere" }) }},
	{input: "PostgreSQL down at start", prepare: func(e *environment) { e.url = "postgres://cdc@127.0.0.1:1/app" },
		goesOn: "PostgreSQL session ended, will reconnect"},
	{input: "`wal_level = replica`", until: 18, prepare: func(e *environment) { e.useServer("wal_level", "replica") }},
	{input: "role without REPLICATION", prepare: func(e *environment) { e.asPoorRole() }},
	{input: "missing table", set: []string{"source.tables=public.outbx"}},
	{input: "missing column", prepare: func(e *environment) { e.exec(`ALTER TABLE outbox DROP COLUMN aggregateid`) }},
	{input: "publication without the table", prepare: func(e *environment) { e.exec(`CREATE PUBLICATION cdc_outbox`) }},
	{input: "publication without inserts", prepare: func(e *environment) {
		e.exec(`CREATE PUBLICATION cdc_outbox FOR TABLE outbox WITH (publish = 'delete')`)
	}},
	{input: "unlogged table, under `FOR ALL TABLES`", prepare: func(e *environment) {
		e.exec(`CREATE PUBLICATION cdc_outbox FOR ALL TABLES`, `ALTER TABLE outbox SET UNLOGGED`)
	}},
	{input: "slot of another plugin", prepare: func(e *environment) {
		e.exec(`CREATE PUBLICATION cdc_outbox FOR TABLE outbox`, `SELECT pg_create_logical_replication_slot('cdc_outbox', 'test_decoding')`)
	}},
	{input: "slot of another database", prepare: func(e *environment) {
		e.exec(`SELECT pg_create_logical_replication_slot('cdc_outbox', 'pgoutput')`)
		e.change(func(u *url.URL) { u.Path = "/postgres" })
	}},
	{input: "slot with `two_phase`", prepare: func(e *environment) {
		e.exec(`CREATE PUBLICATION cdc_outbox FOR TABLE outbox`, `SELECT pg_create_logical_replication_slot('cdc_outbox', 'pgoutput', false, true)`)
	}},
	{input: "slot dropped since the last run", prepare: func(e *environment) {
		e.runOnce()
		e.exec(dropSlot...)
	}},
	{input: "slot dropped and recreated since the last run", prepare: func(e *environment) {
		e.runOnce()
		e.exec(append(dropSlot, `SELECT pg_create_logical_replication_slot('cdc_outbox', 'pgoutput')`)...)
	}},
	{input: "publication dropped since the last run", prepare: func(e *environment) {
		e.runOnce()
		e.exec(`DROP PUBLICATION cdc_outbox`)
	}},
	{input: "`snapshot: initial` for a slot without a checkpoint", prepare: func(e *environment) { e.runOnce() },
		set: []string{"source.snapshot=initial", "checkpoint.key=another"}},

	{input: "`delivery: exactly_once` for a slot without a checkpoint", prepare: func(e *environment) { e.runOnce() },
		set: []string{"sink.kafka.delivery=exactly_once", "checkpoint.key=another"}},

	{input: "broker down at start", set: []string{"sink.kafka.brokers=[127.0.0.1:1]"},
		goesOn: "checkpoint store is not available, will retry"},
	{input: "login missing, `sink.kafka.sasl`", prepare: func(e *environment) { e.useCluster(kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "p")) },
		goesOn: "checkpoint store is not available, will retry"},
	{input: "brokers whose `transaction.max.timeout.ms` is under ten seconds, with `exactly_once`", prepare: func(e *environment) {
		e.useCluster(kfake.BrokerConfigs(map[string]string{"transaction.max.timeout.ms": "5000"}))
	}, set: []string{"sink.kafka.delivery=exactly_once"}},
	{input: "topic missing, not to be created", prepare: func(e *environment) { e.insert("order", "1", "{}") },
		goesOn: "waiting for a missing topic"},
	{input: "topic not creatable", prepare: func(e *environment) { e.insert("order", "1", "{}") },
		set: []string{"sink.kafka.create_topics=true", "sink.kafka.replication_factor=7"}},
	{input: "no privilege on the topic", prepare: func(e *environment) {
		e.useCluster(kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "outbox.event.order"), checkpointOnlyUser())
		e.insert("order", "1", "{}")
	}, set: []string{"sink.kafka.sasl.mechanism=PLAIN", "sink.kafka.sasl.username=cdc", "sink.kafka.sasl.password=pw"}},
	{input: "checkpoint topic not compacted", prepare: func(e *environment) {
		e.useCluster(kfake.SeedTopics(1, store.Topic("cdc-outbox.checkpoints", e.database()+"/cdc_outbox")))
	}},
	{input: "payload over `sink.kafka.max_record_bytes`", prepare: func(e *environment) {
		e.insert("order", "1", `"`+strings.Repeat("x", 2<<20)+`"`)
	}, set: []string{"sink.kafka.create_topics=true"}},
	{input: "payload over the broker's limit", prepare: func(e *environment) {
		e.useCluster(kfake.BrokerConfigs(map[string]string{"message.max.bytes": "100000"}))
		e.insert("order", "1", `"`+random(200_000)+`"`)
	}, set: []string{"sink.kafka.create_topics=true"}},
	{input: "transaction over `sink.kafka.max_buffered_bytes`, with `transaction_boundaries`", prepare: func(e *environment) {
		e.runOnce()
		e.exec(`INSERT INTO outbox SELECT gen_random_uuid(), 'order', g::text, 'Placed', to_jsonb(repeat('x', 900000)) FROM generate_series(1, 5) g`)
	}, set: []string{"sink.kafka.delivery=exactly_once", "sink.kafka.transaction_boundaries=true", "sink.kafka.max_buffered_bytes=2097152", "sink.kafka.create_topics=true"}},
	{input: "NULL or empty key", prepare: func(e *environment) { e.insert("order", "", "{}") }},
	{input: "row from a time when a column had another name", prepare: func(e *environment) {
		e.runOnce()
		e.exec(`ALTER TABLE outbox RENAME aggregateid TO renamed`,
			`INSERT INTO outbox (id, aggregatetype, renamed, type, payload) VALUES ('00000000-0000-0000-0000-000000000001', 'order', '1', 'Placed', '{}')`,
			`ALTER TABLE outbox RENAME renamed TO aggregateid`)
	}},
	{input: "illegal topic name", prepare: func(e *environment) { e.insert("no spaces", "1", "{}") }},
	{input: "dead-letter topic missing", prepare: func(e *environment) { e.insert("order", "", "{}") },
		set: []string{"errors.on_bad_event=dead_letter"}},
}
