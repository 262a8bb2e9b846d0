package main

import (
	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// How Debezium is set up. Reasons of the settings:
//
//   - Debezium's reference, "PostgreSQL connector",
//     https://debezium.io/documentation/reference/stable/connectors/postgresql.html:
//     plugin.name=pgoutput, without anything to install; a separate slot and
//     publication, the publication made beforehand; snapshot.mode=no_data
//     streams from where the slot begins, when no offset is stored; max.queue.size
//     larger than max.batch.size: the defaults of 8192 and 2048, as guides' larger
//     ones (four and twice as many, tried here) drain no faster, or slower;
//     poll.interval.ms is how long a batch waits for more events where not full, and
//     also how long a full queue waits: most of the latency, and with the default of
//     500 half of the throughput; statistics.metrics.enabled and
//     extended.headers.enabled only add work.
//   - "Outbox Event Router", …/transformations/outbox-event-router.html: the
//     only transformation, with the defaults except for the name of the topic;
//     with StringConverter a jsonb payload goes out as text, as ours does.
//   - Kafka's reference, "Producer Configs", and Confluent's and Red Hat's
//     guides ("How to Tune Kafka Connect Source Connectors to Optimize
//     Throughput"; "Handling high volumes of messages"): larger batch.size,
//     linger.ms, a compression, and max.request.size and buffer.memory to
//     match, for throughput; linger.ms=0 for latency. Compression is the one we
//     use by default. acks=all is Connect's default and ours.
//   - Kafka's reference, "Connect Configs": plugin.discovery=service_load
//     starts a worker without looking through all the jars.

// connection are the required properties.
func connection(r road, t task) properties {
	return r.database().with(properties{
		"name":             t.topic,
		"connector.class":  "io.debezium.connector.postgresql.PostgresConnector",
		"tasks.max":        "1",
		"plugin.name":      "pgoutput",
		"topic.prefix":     t.topic,
		"slot.name":        t.slot,
		"publication.name": rig.Publication,

		"publication.autocreate.mode": "disabled",
		"table.include.list":          "public.outbox",
		"snapshot.mode":               "no_data",
		"tombstones.on.delete":        "false",

		"key.converter":   "org.apache.kafka.connect.storage.StringConverter",
		"value.converter": "org.apache.kafka.connect.storage.StringConverter",

		"transforms":             "outbox",
		"transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
		"transforms.outbox.route.topic.replacement": t.topic,
	})
}

// tuned is for both: throughput and latency.
var tuned = properties{
	"max.batch.size":             "2048",
	"max.queue.size":             "8192",
	"statistics.metrics.enabled": "false",
	"extended.headers.enabled":   "false",

	"producer.override.compression.type": "none",
	"producer.override.batch.size":       "262144",
	"producer.override.max.request.size": "4194304",
	"producer.override.buffer.memory":    "67108864",
}

// Aims of tuning: each mode is measured with its aim. Latency has a price in processor
// time: a shorter poll takes more.
var (
	forThroughput = properties{"poll.interval.ms": "10", "producer.override.linger.ms": "5"}
	forLatency    = properties{"poll.interval.ms": "1", "producer.override.linger.ms": "0"}
	forBoth       = properties{"poll.interval.ms": "10", "producer.override.linger.ms": "0"}
)

// standalone is a worker's configuration.
func standalone(r road) properties {
	return r.kafka().with(properties{
		"key.converter":   "org.apache.kafka.connect.storage.StringConverter",
		"value.converter": "org.apache.kafka.connect.storage.StringConverter",
	})
}

var tunedWorker = properties{"plugin.discovery": "service_load"}

// tunedHeap is as small as costs no throughput: 1 GiB drains as fast and is
// resident. The default is that of Kafka's connect-standalone.sh.
const (
	tunedHeap   = "-Xms512m -Xmx512m"
	defaultHeap = "-Xms256M -Xmx2G"
	manyHeap    = "-Xms256M -Xmx512M" // for 20 connectors
)
