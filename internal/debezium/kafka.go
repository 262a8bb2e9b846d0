package debezium

import (
	"slices"
	"strconv"
	"strings"
)

const (
	producerPrefix = "producer.override."
	// workerMark begins the names of a worker's options among the judged.
	workerMark = "worker: "
)

// setting is the effective value of a producer's setting: the connector's, or else the
// worker's.
func (t *translation) setting(name string) (Option, bool) {
	if o, ok := t.options[producerPrefix+name]; ok {
		return o, true
	}
	for _, inherited := range []string{"producer." + name, name} {
		if inherited == name && name != "bootstrap.servers" {
			break // Connect's producers take over nothing else
		}
		if o, ok := t.worker[inherited]; ok {
			return Option{Name: workerMark + o.Name, Written: workerMark + o.Written, Value: o.Value}, true
		}
	}
	return Option{}, false
}

// producerRule is a setting of Kafka's producer.
type producerRule struct {
	names []string
	kind  Kind
	key   string
	note  string
	set   func(t *translation, o Option, r producerRule)
}

const retried = "requests are repeated without end, in order"

// producerRules are the settings of a producer, but for its login and TLS.
var producerRules = []producerRule{
	{names: []string{"compression.type"}, kind: Same, key: "sink.kafka.compression", set: func(t *translation, o Option, r producerRule) {
		t.put(r.key, strings.ToLower(o.Value))
		t.say(o, r.kind, r.key)
	}},
	{names: []string{"linger.ms"}, kind: Differs, key: "sink.kafka.linger", note: "the first record after a quiet time goes at once", set: func(t *translation, o Option, r producerRule) {
		t.put(r.key, o.Value+"ms")
		t.say(o, r.kind, r.key, r.note)
	}},
	{names: []string{"max.request.size"}, kind: Same, key: "sink.kafka.max_record_bytes", set: putSize},
	{names: []string{"client.id"}, kind: Same, key: "sink.kafka.client_id", set: func(t *translation, o Option, r producerRule) {
		t.put(r.key, t.resolve(o, "CDC_CLIENT_ID").text)
		t.say(o, r.kind, r.key)
	}},
	{names: []string{"acks"}, kind: Same, note: "always all", set: func(t *translation, o Option, r producerRule) {
		if !slices.Contains([]string{"all", "-1"}, o.Value) {
			r.kind = Differs
		}
		t.say(o, r.kind, "", r.note)
	}},
	{names: []string{"enable.idempotence"}, kind: Same, note: "always on", set: func(t *translation, o Option, r producerRule) {
		if !isTrue(o.Value) {
			r.kind = Differs
		}
		t.say(o, r.kind, "", r.note)
	}},
	{names: []string{"buffer.memory"}, kind: Differs, key: "sink.kafka.max_buffered_bytes", note: "bounds the memory of all events in flight, and has its own default"},
	{names: []string{"batch.size"}, kind: None, note: "batches hold up to a record of max_record_bytes"},
	{names: []string{"max.in.flight.requests.per.connection"}, kind: Same, note: "order per key is kept"},
	{names: []string{
		"retries", "retry.backoff.ms", "retry.backoff.max.ms", "delivery.timeout.ms", "request.timeout.ms", "max.block.ms",
		"reconnect.backoff.ms", "reconnect.backoff.max.ms", "socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms",
	}, kind: Differs, note: retried},
	{names: []string{"transactional.id", "transaction.timeout.ms"}, kind: None, key: "sink.kafka.delivery", note: "exactly_once names its transactions itself"},
	{names: []string{"key.serializer", "value.serializer"}, kind: Same, note: "the format's bytes"},
	{names: []string{"partitioner.class"}, kind: None, set: func(t *translation, o Option, r producerRule) {
		if o.Value == "" || strings.HasSuffix(o.Value, ".DefaultPartitioner") || strings.HasSuffix(o.Value, "BuiltInPartitioner") {
			t.say(o, Same, "", "by the key's hash, as Kafka's default")
			return
		}
		t.open(o, None, "event.additional", "records go to partitions by the key's hash, as by Kafka's default, or by a column: COLUMN:partition")
	}},
	{names: []string{
		"interceptor.classes", "metric.reporters", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms",
		"metadata.max.age.ms", "metadata.max.idle.ms", "connections.max.idle.ms", "send.buffer.bytes", "receive.buffer.bytes",
		"client.dns.lookup", "partitioner.ignore.keys", "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms",
		"compression.gzip.level", "compression.lz4.level", "compression.zstd.level", "enable.metrics.push",
	}, kind: None, note: "no such setting of the producer"},
}

func putSize(t *translation, o Option, r producerRule) {
	const smallest, largest, buffered = 1 << 10, 1 << 30, 8 << 20
	n, err := strconv.ParseInt(strings.TrimSpace(o.Value), 10, 64)
	if err != nil || n < smallest || n > largest {
		t.say(o, Differs, r.key, "from 1KiB to 1GiB")
		return
	}
	t.put(r.key, strconv.FormatInt(n, 10))
	if n > buffered {
		t.put("sink.kafka.max_buffered_bytes", strconv.FormatInt(n, 10))
	}
	t.say(o, r.kind, r.key)
}

// kafka makes sink.kafka of the producer's settings.
func (t *translation) kafka() {
	t.brokers()
	for _, r := range producerRules {
		for _, name := range r.names {
			o, ok := t.setting(name)
			switch {
			case !ok:
			case r.set != nil:
				r.set(t, o, r)
			default:
				t.say(o, r.kind, r.key, r.note)
			}
		}
	}
	t.security()
	for name, o := range t.worker {
		if _, done := t.judged[workerMark+name]; !done && strings.HasPrefix(name, "producer.") {
			if _, overridden := t.options[producerPrefix+strings.TrimPrefix(name, "producer.")]; overridden {
				continue
			}
			t.say(Option{Name: workerMark + name, Written: workerMark + o.Written, Value: o.Value}, None, "", "no such setting of the producer")
		}
	}
	for name, o := range t.options {
		_, done := t.judged[name]
		switch setting := strings.TrimPrefix(name, "producer."); {
		case done || setting == name || strings.HasPrefix(name, producerPrefix):
		default:
			t.say(o, None, "", "Connect ignores it in a connector: there it would be "+producerPrefix+setting)
		}
	}
}

// brokers makes sink.kafka.brokers. Connectors seldom name brokers: their worker does.
func (t *translation) brokers() {
	const key = "sink.kafka.brokers"
	o, ok := t.setting("bootstrap.servers")
	if !ok {
		o, ok = t.options["bootstrap.servers"]
	}
	if ok {
		r := t.resolve(o, "KAFKA_BROKERS")
		var brokers []string
		for _, broker := range list(r.text) {
			if scheme := strings.Index(broker, "://"); scheme >= 0 {
				broker = broker[scheme+len("://"):]
			}
			brokers = append(brokers, broker)
		}
		t.put(key, brokers)
		t.say(o, Same, key, r.notes...)
	}
	switch {
	case len(t.choices.Brokers) > 0:
		t.put(key, t.choices.Brokers)
	case !ok:
		name := producerPrefix + "bootstrap.servers"
		t.put(key, []string{"${KAFKA_BROKERS}"})
		t.open(Option{Name: name, Written: t.written(name)}, None, key,
			"the worker knows the brokers: name its properties by --worker FILE, or brokers by --brokers HOST:PORT")
	}
}
