package debezium

import (
	"regexp"
	"strconv"
	"strings"
)

// rule is the judgement on options of the connector, a worker or Debezium Server.
type rule struct {
	names []string
	kind  Kind
	key   string
	note  string
	set   func(t *translation, o Option, r rule)
	// elsewhere: another file judges the options, and the rule is for the table in the
	// documentation.
	elsewhere bool
}

const (
	noHeartbeat = "the slot advances without: idle positions are confirmed too"
	noSnapshot  = "rows are published by snapshot, replay and repair"
	noQueue     = "memory is bounded by sink.kafka.max_buffered_bytes"
	noChange    = "no change events: the router's records have no such part"
	noMetric    = "/metrics has its own names"
	noSignal    = "the verbs snapshot, replay and repair take the place of signals"
	ownRetry    = "connections are made again without end, with pauses up to seconds"
	onlyNamed   = "only the tables and columns of the options are read"
	noOffset    = "the slot and the checkpoint keep the position"
)

// rules are all options of Debezium 3.7's connector, and of Connect for a connector.
var rules = []rule{
	{names: []string{"database.hostname", "database.port", "database.user", "database.dbname", "database.sslmode", "database.sslrootcert", "database.sslcert", "database.sslpassword"}, kind: Same, key: "source.url", elsewhere: true},
	{names: []string{"database.sslkey"}, kind: Differs, key: "source.url", note: "in PEM", elsewhere: true},
	{names: []string{"database.password"}, kind: Same, key: "source.password", elsewhere: true},
	{names: []string{"database.sslfactory"}, kind: Differs, key: "source.url", elsewhere: true},
	{names: []string{"database.connection.timeout.ms", "connection.validation.timeout.ms"}, kind: None, key: "source.url", note: "connect_timeout there"},
	{names: []string{"database.query.timeout.ms"}, kind: None, key: "source.url", note: "statement_timeout there"},
	{names: []string{"database.initial.statements"}, kind: None, note: "sessions have their own settings; a publication is made by setup"},
	{names: []string{"database.tcpKeepAlive"}, kind: Same, note: "a silent server is noticed by source.liveness_timeout"},
	{names: []string{"database.connection.factory.class"}, kind: None, note: "a class of Java"},
	{names: []string{"plugin.name"}, kind: Differs, key: "source.slot", note: "must be pgoutput, which is not Debezium's default", elsewhere: true},
	{names: []string{"slot.name"}, kind: Same, key: "source.slot", elsewhere: true},
	{names: []string{"slot.drop.on.stop"}, kind: Differs, key: "source.create", note: "true: only with a new slot", elsewhere: true},
	{names: []string{"publication.name"}, kind: Same, key: "source.publication", elsewhere: true},
	{names: []string{"publication.autocreate.mode"}, kind: Differs, key: "source.create", note: "outbox tables alone", elsewhere: true},
	{names: []string{"snapshot.mode"}, kind: Differs, key: "source.snapshot", note: "never: Debezium has published the rows", elsewhere: true},
	{names: []string{"slot.failover"}, kind: Differs, key: "source.failover", note: "on by default, from PostgreSQL 17 on"},
	{names: []string{"slot.max.retries", "slot.retry.delay.ms", "retriable.restart.connector.wait.ms", "errors.max.retries", "create.slot.command.timeout", "internal.create.slot.command.timeout"}, kind: Differs, note: ownRetry},
	{names: []string{"slot.stream.params"}, kind: None, note: "the plugin's parameters are fixed"},
	{names: []string{"status.update.interval.ms"}, kind: Same, key: "source.status_interval", set: putInterval},
	{names: []string{"publish.via.partition.root"}, kind: Same, note: "a property of the publication; partitions are published under either"},
	{names: []string{"flush.lsn.source", "lsn.flush.mode", "lsn.flush.timeout.ms", "lsn.flush.timeout.action", "offset.mismatch.strategy", "internal.slot.seek.to.known.offset.on.start", "slot.seek.to.known.offset.on.start"}, kind: Differs, key: "checkpoint.store", note: "the position is confirmed after Kafka's acknowledgement, and compared at each start"},
	{names: []string{"xmin.fetch.interval.ms"}, kind: None, note: noOffset},
	{names: []string{"read.only"}, kind: None, note: "nothing is written into the database with source.create: false"},
	{names: []string{"replica.identity.autoset.values"}, kind: None, note: "inserts need no replica identity"},
	{names: []string{"table.include.list"}, kind: Same, key: "source.tables", note: "without patterns", elsewhere: true},
	{names: []string{"table.whitelist"}, kind: Differs, key: "source.tables", note: "the old name", elsewhere: true},
	{names: []string{"schema.include.list", "table.exclude.list", "schema.exclude.list", "table.ignore.builtin", "schema.whitelist", "schema.blacklist", "table.blacklist", "database.include.list", "database.exclude.list"}, kind: Same, key: "source.tables", note: onlyNamed},
	{names: []string{"column.include.list", "column.exclude.list", "column.blacklist", "column.whitelist"}, kind: Same, note: onlyNamed},
	{names: []string{"topic.prefix"}, kind: Same, key: "event.debezium.topic_prefix", elsewhere: true},
	{names: []string{"database.server.name"}, kind: Differs, key: "event.debezium.topic_prefix", note: "the old name", elsewhere: true},
	{names: []string{"extended.headers.enabled"}, kind: Differs, key: "event.debezium.extended_headers_enabled", note: "without runId", elsewhere: true},
	{names: []string{"decimal.handling.mode"}, kind: Same, key: "event.debezium.decimal_handling_mode", set: putMode},
	{names: []string{"time.precision.mode"}, kind: Same, key: "event.debezium.time_precision_mode", set: putMode},
	{names: []string{"binary.handling.mode"}, kind: Same, key: "event.debezium.binary_handling_mode", set: putMode},
	{names: []string{"interval.handling.mode"}, kind: Same, key: "event.debezium.interval_handling_mode", set: putMode},
	{names: []string{"hstore.handling.mode"}, kind: Same, key: "event.debezium.hstore_handling_mode", set: putMode},
	{names: []string{"money.fraction.digits"}, kind: Same, key: "event.debezium.money_fraction_digits", set: putMode},
	{names: []string{"include.unknown.datatypes"}, kind: Differs, note: "columns of composite types are refused"},
	{names: []string{"message.key.columns"}, kind: Same, note: "the router makes the key"},
	{names: []string{"converters", "post.processors"}, kind: None, note: "values are converted by event.debezium alone", set: openIfSet},
	{names: []string{"tombstones.on.delete"}, kind: Same, note: "deletes are never published"},
	{names: []string{"skipped.operations"}, kind: Same, note: "inserts are published; an update is told by event.on_update"},
	{names: []string{"skip.messages.without.change"}, kind: Same, note: "updates are not published"},
	{names: []string{"provide.transaction.metadata", "transaction.metadata.factory", "topic.transaction"}, kind: None, key: "sink.kafka.transaction_boundaries", note: "no topic of transactions; that keeps them whole"},
	{names: []string{"message.prefix.include.list", "message.prefix.exclude.list"}, kind: None, key: "source.message_prefix", note: "source.mode: message is for events as messages"},
	{names: []string{"topic.naming.strategy", "topic.delimiter", "topic.cache.size", "schema.name.adjustment.mode", "schema.refresh.mode", "sanitize.field.names", "include.schema.changes", "include.schema.comments", "column.propagate.source.type", "datatype.propagate.source.type", "sourceinfo.struct.maker", "source.struct.version", "unavailable.value.placeholder", "toasted.value.placeholder"}, kind: Same, note: noChange},
	{names: []string{"field.name.adjustment.mode"}, kind: None, note: "names of expanded members stay as written", set: openUnlessNone},
	{names: []string{"event.processing.failure.handling.mode", "event.converting.failure.handling.mode"}, kind: Differs, key: "errors.on_bad_event", note: "stop, unless set otherwise"},
	{names: []string{"heartbeat.interval.ms", "heartbeat.action.query", "heartbeat.topics.prefix", "topic.heartbeat.prefix", "topic.heartbeat.name"}, kind: None, note: noHeartbeat},
	{names: []string{"signal.data.collection", "signal.enabled.channels", "signal.poll.interval.ms", "signal.emit.failure.max.retries", "signal.emit.failure.backoff.ms"}, kind: None, note: noSignal},
	{names: []string{"notification.enabled.channels"}, kind: None, note: "/status, /metrics and the page tell"},
	{names: []string{
		"snapshot.isolation.mode", "snapshot.locking.mode", "snapshot.locking.mode.custom.name", "snapshot.lock.timeout.ms", "snapshot.delay.ms", "snapshot.fetch.size",
		"snapshot.include.collection.list", "snapshot.max.threads", "snapshot.max.threads.multiplier", "legacy.snapshot.max.threads", "snapshot.mode.custom.name",
		"snapshot.query.mode", "snapshot.query.mode.custom.name", "snapshot.select.statement.overrides", "snapshot.tables.order.by.row.count", "snapshot.new.tables", "snapshot.custom.class",
		"snapshot.scan.all.columns.force", "incremental.snapshot.chunk.size", "incremental.snapshot.allow.schema.changes", "incremental.snapshot.watermarking.strategy", "streaming.delay.ms",
	}, kind: None, note: noSnapshot},
	{names: []string{"max.batch.size", "max.queue.size", "max.queue.size.in.bytes", "poll.interval.ms", "poll.dispatch.interval.ms", "queue.provider.type", "query.fetch.size"}, kind: Differs, key: "sink.kafka.max_buffered_bytes", note: noQueue},
	{names: []string{"connector.class"}, kind: Same, note: "PostgresConnector alone"},
	{names: []string{"tasks.max"}, kind: Same, note: "one task reads a slot"},
	{names: []string{"name"}, kind: Same, note: "slot and database name the connector"},
	{names: []string{"custom.metric.tags", "statistics.metrics.enabled", "advanced.metrics.enable"}, kind: None, note: noMetric},
	{names: []string{"guardrail.collections.max", "guardrail.collections.limit.action", "executor.shutdown.timeout.ms", "custom.sanitize.pattern", "log.position.check.enable", "custom.retriable.exception"}, kind: None, note: onlyNamed},
	{names: []string{"transforms", "predicates"}, kind: Differs, note: "the outbox event router alone", elsewhere: true},
	{names: []string{"value.converter"}, kind: Same, key: "event.payload_format", note: "StringConverter, JsonConverter, BinaryDataConverter; Confluent's AvroConverter, ProtobufConverter and JsonSchemaConverter are encoding.value, their ssl.… encoding.registry.tls", elsewhere: true},
	{names: []string{"key.converter"}, kind: Same, key: "event.key_format", note: "StringConverter, JsonConverter; Confluent's converters are encoding.key", elsewhere: true},
	{names: []string{"key.converter.schemas.enable"}, kind: Same, key: "event.debezium.key_converter_schemas_enable", elsewhere: true},
	{names: []string{"value.converter.schemas.enable"}, kind: Same, key: "event.debezium.value_converter_schemas_enable", elsewhere: true},
	{names: []string{"header.converter"}, kind: Same, note: "SimpleHeaderConverter", elsewhere: true},
	{names: []string{"internal.key.converter", "internal.value.converter"}, kind: Same, note: "of Connect's own topics"},
	{names: []string{"topic.creation.default.partitions"}, kind: Same, key: "sink.kafka.topic_partitions", elsewhere: true},
	{names: []string{"topic.creation.default.replication.factor"}, kind: Same, key: "sink.kafka.replication_factor", elsewhere: true},
	{names: []string{"topic.creation.groups"}, kind: None, note: "all created topics are alike", elsewhere: true},
	{names: []string{"topic.creation.enable"}, kind: Same, key: "sink.kafka.create_topics", note: "true only with topic.creation.default"},
	{names: []string{"errors.tolerance"}, kind: Same, key: "errors.on_bad_event", note: "all is skip; dead_letter keeps the event", set: putTolerance},
	{names: []string{"errors.retry.timeout", "errors.retry.delay.max.ms"}, kind: Differs, note: ownRetry},
	{names: []string{"errors.log.enable"}, kind: Same, note: "each bad event is logged"},
	{names: []string{"errors.log.include.messages"}, kind: None, note: "the log has no payloads; a dead letter has"},
	{names: []string{"errors.deadletterqueue.topic.name", "errors.deadletterqueue.context.headers.enable", "errors.deadletterqueue.topic.replication.factor"}, kind: None, key: "errors.dead_letter_topic", note: "Connect has it for sinks only; errors.on_bad_event: dead_letter here"},
	{names: []string{"exactly.once.support"}, kind: Same, key: "sink.kafka.delivery", note: "required is exactly_once", set: putExactlyOnce},
	{names: []string{"transaction.boundary", "transaction.boundary.interval.ms"}, kind: Differs, key: "sink.kafka.delivery", note: "batches end by themselves"},
	{names: []string{"offsets.storage.topic", "config.action.reload", "tasks.max.enforce"}, kind: None, note: noOffset},
	{names: []string{"bootstrap.servers"}, kind: Same, key: "sink.kafka.brokers", note: "of the worker; ignored in a connector", elsewhere: true},
	{names: []string{"server.sink.type"}, kind: Same, key: "sink.kafka", note: "kafka"},
	{names: []string{"server.sink.kafka.wait.message.delivery.timeout.ms"}, kind: Differs, note: retried},
	{names: []string{"server.quarkus.log.level"}, kind: Same, key: "log.level", set: putLevel},
	{names: []string{"server.quarkus.log.console.json", "server.quarkus.log.console.json.enabled"}, kind: Same, key: "log.format", set: putLogFormat},
	{names: []string{"server.quarkus.http.port"}, kind: Same, key: "http.listen", set: putPort},
}

// prefixed is the judgement on all options of a prefix.
type prefixed struct {
	prefix string
	kind   Kind
	key    string
	note   string
	open   bool
}

func (p prefixed) matches(name string) bool { return strings.HasPrefix(name, p.prefix) }

// prefixes come after all single options, longer ones first.
var prefixes = []prefixed{
	{prefix: "signal.", kind: None, note: noSignal},
	{prefix: "notification.", kind: None, note: "/status, /metrics and the page tell"},
	{prefix: "snapshot.mode.configuration.based.", kind: None, note: noSnapshot},
	{prefix: "snapshot.select.statement.overrides.", kind: None, note: noSnapshot},
	{prefix: "column.mask.", kind: None, note: "values are published as they are", open: true},
	{prefix: "column.truncate.", kind: None, note: "values are published as they are", open: true},
	{prefix: "openlineage.", kind: None, note: "no lineage is reported"},
	{prefix: "schema.history.internal", kind: Same, note: "PostgreSQL's connector has no history of schemas"},
	{prefix: "database.history", kind: Same, note: "PostgreSQL's connector has no history of schemas"},
	{prefix: "offset.", kind: Differs, key: "checkpoint.store", note: noOffset},
	{prefix: "consumer.override.", kind: None, note: "a source consumes nothing"},
	{prefix: "admin.override.", kind: None, note: "topics are created with the producer's login"},
	{prefix: producerPrefix, kind: None, note: "no such setting of the producer"},
	{prefix: "topic.creation.", kind: None, note: "with topic.creation.groups"},
	{prefix: "driver.", kind: None, key: "source.url", note: "of Java's driver; source.url has libpq's parameters"},
	{prefix: "internal.", kind: None, note: "within Debezium"},
	{prefix: "record.processing.", kind: None, note: "within Debezium"},
	{prefix: "task.management.", kind: None, note: "within Debezium"},
	{prefix: "schema.registry.", kind: None, note: "no registry is asked"},
	{prefix: "server.quarkus.", kind: None, note: "of Quarkus"},
	{prefix: "server.sink.", kind: None, note: "of another sink"},
	{prefix: "server.format.", kind: None, note: "with the converters"},
	{prefix: "server.", kind: None, note: "of Debezium Server's program"},
}

// known are the names of all options, to find the meant name.
func known() []string {
	var names []string
	for _, r := range rules {
		names = append(names, r.names...)
	}
	for _, r := range producerRules {
		for _, name := range r.names {
			names = append(names, producerPrefix+name)
		}
	}
	return names
}

func putMode(t *translation, o Option, r rule) {
	value := t.resolve(o, "CDC_"+strings.ToUpper(strings.ReplaceAll(strings.TrimPrefix(r.key, "event.debezium."), ".", "_")))
	t.put(r.key, strings.ToLower(strings.TrimSpace(value.text)))
	t.say(o, r.kind, r.key, value.notes...)
}

func putInterval(t *translation, o Option, r rule) {
	const longest = 60_000
	n, err := strconv.Atoi(strings.TrimSpace(o.Value))
	if err != nil || n < 1 || n > longest {
		t.say(o, Differs, r.key, "1s, the default: at most 1m is possible")
		return
	}
	t.put(r.key, strconv.Itoa(n)+"ms")
	t.say(o, r.kind, r.key)
}

func putTolerance(t *translation, o Option, r rule) {
	if strings.EqualFold(strings.TrimSpace(o.Value), "all") {
		t.put(r.key, "skip")
		t.say(o, Differs, r.key, "skip leaves a bad event out, as there; dead_letter would keep it")
		return
	}
	t.put(r.key, "stop")
	t.say(o, Same, r.key)
}

func putExactlyOnce(t *translation, o Option, r rule) {
	if strings.EqualFold(strings.TrimSpace(o.Value), "required") {
		t.put(r.key, "exactly_once")
		t.say(o, Same, r.key)
		return
	}
	t.say(o, Differs, r.key, "at_least_once, the default; exactly_once needs nothing of a worker")
}

// openIfSet judges options with other values as their effect: a person must decide.
func openIfSet(t *translation, o Option, r rule) {
	if strings.TrimSpace(o.Value) == "" {
		t.say(o, Same, "")
		return
	}
	t.open(o, r.kind, r.key, r.note)
	for _, name := range list(o.Value) {
		for option, own := range t.options {
			if _, done := t.judged[option]; !done && strings.HasPrefix(option, name+".") {
				t.say(own, None, "", "with "+o.Written)
			}
		}
	}
}

func openUnlessNone(t *translation, o Option, r rule) {
	if strings.EqualFold(strings.TrimSpace(o.Value), "none") {
		t.say(o, Same, "")
		return
	}
	t.open(o, r.kind, r.key, r.note)
}

func putLevel(t *translation, o Option, r rule) {
	level, ok := map[string]string{"trace": "debug", "debug": "debug", "info": "info", "warn": "warn", "warning": "warn", "error": "error", "severe": "error", "fatal": "error"}[strings.ToLower(o.Value)]
	if !ok {
		t.say(o, Differs, r.key, "debug, info, warn or error; info is the default")
		return
	}
	t.put(r.key, level)
	t.say(o, r.kind, r.key)
}

func putLogFormat(t *translation, o Option, r rule) {
	format := "console"
	if isTrue(o.Value) {
		format = "json"
	}
	t.put(r.key, format)
	t.say(o, r.kind, r.key)
}

var portNumber = regexp.MustCompile(`^\d{1,5}$`)

func putPort(t *translation, o Option, r rule) {
	if !portNumber.MatchString(o.Value) {
		t.say(o, Differs, r.key, "127.0.0.1:8080, the default")
		return
	}
	t.put(r.key, "127.0.0.1:"+o.Value)
	t.say(o, Differs, r.key, "on loopback only; without authentication")
}
