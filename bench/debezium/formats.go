package main

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
)

// The schemas of the documents: Avro's as AvroConverter makes it of Debezium's, and
// JSON Schema's in the manner of Confluent's converter. Each member is optional.
var (
	//go:embed document.avsc
	avroSchema string
	//go:embed document.schema.json
	jsonSchema string
)

// format is a form of values, here and there.
type format struct {
	ours     rig.Settings
	debezium properties
	// subject has the schema in a registry; "": no registry.
	subject string
	schema  sr.Schema
	// converters says that Debezium needs Apicurio's.
	converters bool
	// framed is the length of the schema's number in front of our values alone.
	framed int
}

// numberSize is Confluent's: a zero byte, and four of the number.
const numberSize = 5

// jsonConverter expands the payload, and writes the result as JSON.
func jsonConverter(schemas string) properties {
	return properties{
		"transforms.outbox.table.expand.json.payload": "true",
		"value.converter":                "org.apache.kafka.connect.json.JsonConverter",
		"value.converter.schemas.enable": schemas,
	}
}

// formatsOf are the formats by mode. Our settings are those that `cdc-outbox import`
// writes for the properties, or for Confluent's converters in their places:
//
//   - Confluent's converters are not on Maven Central. Apicurio's AvroConverter writes
//     Confluent's wire format with as-confluent. It looks the schema up once, by its
//     name, and keeps it.
//   - No converter on Maven Central writes JSON Schema in the wire format: Apicurio's
//     ExtJsonConverter wraps the document into another. The JsonConverter without
//     schemas does less than Confluent's JsonSchemaConverter, which writes the same
//     document behind the schema's number.
var formatsOf = map[string]format{
	modeCompat: {},
	modeJSON: {
		ours:     rig.Settings{"event.payload_format=json_expanded", "event.debezium.value_converter_schemas_enable=true"},
		debezium: jsonConverter("true"),
	},
	modeJSONSchema: {
		ours:     rig.Settings{"event.payload_format=json_expanded", "encoding.value.format=json_schema", "encoding.value.validate=false"},
		debezium: jsonConverter("false"),
		subject:  "document",
		schema:   sr.Schema{Schema: jsonSchema, Type: sr.TypeJSON},
		framed:   numberSize,
	},
	modeAvro: {
		ours: rig.Settings{"event.payload_format=json_expanded", "encoding.value.format=avro"},
		debezium: properties{
			"transforms.outbox.table.expand.json.payload": "true",
			"value.converter": "io.apicurio.registry.utils.converter.AvroConverter",
			"value.converter.apicurio.registry.as-confluent":           "true",
			"value.converter.apicurio.registry.headers.enabled":        "false",
			"value.converter.apicurio.registry.find-latest":            "true",
			"value.converter.apicurio.registry.artifact.group-id":      "default",
			"value.converter.apicurio.registry.artifact.artifact-id":   "payload",
			"value.converter.apicurio.registry.check-period-ms":        "600000",
			"value.converter.apicurio.registry.fault-tolerant-refresh": "true",
		},
		subject:    "payload",
		schema:     sr.Schema{Schema: avroSchema, Type: sr.TypeAvro},
		converters: true,
	},
}

// formats compares event.compat with Debezium, in a mode's format, by a backlog.
func (s *stage) formats(ctx context.Context, mode string) error {
	f := formatsOf[mode]
	set := append(rig.Settings{"event.compat=debezium", "event.debezium.extended_headers_enabled=false"}, f.ours...)
	warm := s.tuned(warmName, forThroughput.with(f.debezium), true)
	if f.subject != "" {
		if err := s.openRegistry(ctx); err != nil {
			return err
		}
		if err := s.registry.register(ctx, f.subject, f.schema); err != nil {
			return err
		}
		set = append(set, "encoding.registry.urls="+s.registry.confluent(), "encoding.value.subject=record", "encoding.value.record="+f.subject)
	}
	if f.converters {
		script, err := child.Script("debezium.sh")
		if err != nil {
			return err
		}
		plugins, err := child.Output(ctx, "", script, "converters")
		if err != nil {
			return err
		}
		warm.plugins, warm.worker = lastLine(plugins), properties{} // found by looking through the jars
		warm.connector = warm.connector.with(properties{"value.converter.apicurio.registry.url": s.registry.own()})
	}
	load := s.load()
	load.Documents = true
	var want *fingerprint // of the first subject's topic
	return s.drainEach(ctx, load, ", format "+mode, func(ctx context.Context, t task, r running, b rig.Backlog) (map[string]float64, error) {
		values, err := s.drained(ctx, t, r, b)
		if err != nil {
			return nil, err
		}
		skip := 0
		if _, isOurs := r.(own); isOurs {
			skip = f.framed
		}
		got, err := fingerprintOf(ctx, s.kafka, t.topic, int64(b.Events()), skip)
		if err != nil {
			return nil, err
		}
		if want == nil {
			want = got
		}
		if *got != *want {
			return nil, fmt.Errorf("the records differ from those of an earlier run: %+v, before %+v", *got, *want)
		}
		return values, nil
	}, nil, ours{s.connector, s.road(), append(set, s.set...), oursName}, warm)
}

// openRegistry starts the registry, once.
func (s *stage) openRegistry(ctx context.Context) (err error) {
	if s.registry != nil {
		return nil
	}
	if s.registry, err = startRegistry(ctx); err != nil {
		return err
	}
	s.results.Versions["schema registry"] = s.registry.version
	fmt.Println("schema registry:", s.registry.version)
	return nil
}
