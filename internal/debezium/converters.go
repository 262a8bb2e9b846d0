package debezium

import (
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/nearest"
)

// converter is a converter in the input or in the worker.
type converter struct {
	option  Option // with the class
	given   bool
	class   string // the last part, without the word Converter
	schemas bool   // schemas.enable, on by default in the JsonConverter
}

// converter finds key.converter, value.converter or header.converter, in the input or
// in the worker.
func (t *translation) converter(side, byDefault string) converter {
	name := side + ".converter"
	c := converter{schemas: true}
	c.option, c.given = t.options[name]
	place := t.options
	switch {
	case t.server:
		format, given := t.options["server.format."+side]
		c.option, c.given = Option{Name: name, Written: "debezium.format." + side, Value: "json"}, true
		if given {
			c.option = format
		}
	case !c.given:
		c.option, c.given = t.worker[name]
		place = t.worker
	}
	if !c.given {
		c.option = Option{Name: name, Written: name, Value: byDefault}
	}
	c.class = short(c.option.Value)
	if o, ok := place[name+".schemas.enable"]; ok {
		c.schemas = !strings.EqualFold(strings.TrimSpace(o.Value), "false")
	}
	return c
}

// formats are the names of Debezium Server for converters.
var formats = map[string]string{
	"json": "json", "jsonbytearray": "json", "simplestring": "string", "binary": "binarydata",
	"avro": "avro", "protobuf": "protobuf", "cloudevents": "cloudevents",
}

// short is a class without package and the word Converter, in lower case.
func short(class string) string {
	class = strings.TrimSpace(class)
	class = class[strings.LastIndexAny(class, ".$")+1:]
	class = strings.ToLower(strings.TrimSuffix(class, "Converter"))
	if format, ok := formats[class]; ok {
		return format
	}
	return class
}

// converters judges key, value and header.
func (t *translation) converters() {
	t.keyConverter()
	t.valueConverter()
	t.headerConverter()
}

const byWorker = "the worker's setting decides: name its properties by --worker FILE"

// judge judges a converter and the converter's options.
func (t *translation) judge(side string, c converter, kind Kind, key string, open bool, notes ...string) {
	o := c.option
	o.Name = side + ".converter"
	if _, here := t.options[o.Name]; c.given && !here && !t.server {
		o.Name, o.Written = workerMark+o.Name, workerMark+o.Written
	}
	if format := "server.format." + side; t.server && t.options[format].Name != "" {
		o.Name = format
	}
	say := t.say
	if open {
		say = t.open
	}
	say(o, kind, key, notes...)
	for name, option := range t.options {
		own, ok := strings.CutPrefix(name, side+".converter.")
		if _, done := t.judged[name]; done || !ok {
			continue
		}
		switch plain := c.class == "json" || c.class == "string"; {
		case plain && !slices.Contains(converterOptions, own):
			meant := ""
			if near := nearest.To(own, converterOptions); near != "" {
				meant = "did you mean " + side + ".converter." + near + "?"
			}
			t.say(option, Unknown, "", "no option of the converter, which ignores it", meant)
		case own == "schemas.enable" && c.class == "json" && side != "header":
			t.say(option, Same, "event.debezium."+side+"_converter_schemas_enable")
		default:
			t.say(option, kind, "", "an option of the converter")
		}
	}
	if enabled := (Option{Name: side + ".converter.schemas.enable", Value: "true"}); c.given && c.class == "json" && c.schemas && side != "header" {
		if _, done := t.judged[enabled.Name]; !done {
			enabled.Written = t.written(enabled.Name)
			t.say(enabled, Same, "event.debezium."+side+"_converter_schemas_enable", "on by default in the JsonConverter")
		}
	}
}

// converterOptions are the options of the JsonConverter and the StringConverter.
var converterOptions = []string{"schemas.enable", "schemas.cache.size", "decimal.format", "replace.null.with.default", "schema.content", "encoding"}

func (t *translation) keyConverter() {
	c := t.converter("key", "")
	switch {
	case !c.given:
		t.judge("key", c, None, "", true, byWorker+"; keys are the column's text here, as by the StringConverter")
	case c.class == "string":
		t.judge("key", c, Same, "", false)
	case c.class == "json":
		t.put("event.key_format", "json")
		if c.schemas {
			t.put("event.debezium.key_converter_schemas_enable", "true")
		}
		t.judge("key", c, Same, "event.key_format", false)
	case t.schemaFormat(c) != "":
		t.bySchema("key", c, t.schemaFormat(c), "")
	case c.class == "bytearray", c.class == "binarydata", c.class == "bytebuffer":
		t.judge("key", c, Differs, "", false, "the bytes of a text; of a bytea column there, which is refused here")
	default:
		t.judge("key", c, None, "", true, "keys of "+printable(c.option.Value)+" have no counterpart: here a key is the column's text, and may go to another partition")
	}
}

// valueConverter makes event.payload_format. A format without a counterpart is written
// under the format's name, and every start refuses the name.
func (t *translation) valueConverter() {
	const key = "event.payload_format"
	c := t.converter("value", "")
	expand, expands := t.options["transforms."+t.router+".table.expand.json.payload"]
	expands = expands && isTrue(expand.Value)
	envelope := false
	for _, field := range list(strings.ToLower(t.options["transforms."+t.router+".table.fields.additional.placement"].Value)) {
		envelope = envelope || strings.HasSuffix(strings.ReplaceAll(field, " ", ""), ":envelope") || strings.Contains(field, ":envelope:")
	}
	refuse := func(format string, notes ...string) {
		t.put(key, format)
		t.judge("value", c, None, key, true, notes...)
	}
	accept := func(format string, kind Kind, notes ...string) {
		t.put(key, format)
		t.judge("value", c, kind, key, false, notes...)
	}
	switch {
	case !c.given:
		refuse("undecided", byWorker+"; raw is the StringConverter, json the JsonConverter without schemas")
	case c.class == "string" && (expands || envelope):
		refuse("struct", "the StringConverter writes an object as Struct{…}, which no consumer reads: choose raw or json_expanded")
	case c.class == "string":
		accept("raw", Same)
	case c.class == "json":
		if c.schemas {
			t.put("event.debezium.value_converter_schemas_enable", "true")
		}
		accept(map[bool]string{true: "json_expanded", false: "json"}[expands], Same)
	case t.schemaFormat(c) != "":
		t.valueBySchema(c, expands)
	case c.class == "binarydata" || c.class == "bytebuffer" || c.class == "bytearray":
		t.binaryConverter(c, expands, accept, refuse)
	case c.class == "cloudevents":
		refuse("cloudevents", "its attributes iodebezium… and its id of a position have no counterpart; event.cloudevents, without event.compat, writes CloudEvents with the event's own id and type")
	default:
		refuse(named(c.class), "values of "+printable(c.option.Value)+" have no counterpart")
	}
}

// valueBySchema has text be a string of the schema, as there, and expanded payloads and
// envelopes records.
func (t *translation) valueBySchema(c converter, expands bool) {
	format, note := t.schemaFormat(c), "a payload of type bytea has another form"
	switch {
	case expands:
		t.put("event.payload_format", "json_expanded")
		if note = ""; format != "json_schema" {
			note = "members without a field are refused, or left out with encoding.value.unknown_fields: ignore"
		}
	default:
		t.put("event.payload_format", "json")
		if format == "protobuf" {
			t.put("encoding.value.message", "google.protobuf.StringValue")
		}
	}
	t.bySchema("value", c, format, note)
}

// binaryConverter judges converters of bytes. All but bytes goes to a delegate, if any.
func (t *translation) binaryConverter(c converter, expands bool, accept func(string, Kind, ...string), refuse func(string, ...string)) {
	delegate := short(t.options["value.converter.delegate.converter.type"].Value)
	schemas := !strings.EqualFold(t.options["value.converter.delegate.converter.type.schemas.enable"].Value, "false")
	switch {
	case expands && delegate == "json" && !schemas:
		accept("json_expanded", Same, "by the delegate")
	case expands:
		refuse("bytes_of_json", "an expanded payload is no bytes: such a value needs a delegate, the JsonConverter without schemas")
	case delegate == "":
		accept("raw", Same, "the payload's bytes; a payload that is no bytea stops the connector there, and is text here")
	default:
		accept("raw", Differs, "the payload's bytes; one that is text or json goes to the delegate there, and is its text here")
	}
}

// named is a format's name for the configuration, of letters only.
func named(class string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, class)
	if name == "" {
		return "unknown"
	}
	return name
}

func (t *translation) headerConverter() {
	c := t.converter("header", "org.apache.kafka.connect.storage.SimpleHeaderConverter")
	switch c.class {
	case "simpleheader":
		if c.given {
			t.judge("header", c, Same, "", false)
		}
	case "string":
		t.judge("header", c, Differs, "", false, "the same for text; other columns have the form of the SimpleHeaderConverter")
	default:
		t.judge("header", c, None, "", true, "headers in JSON (text in quotes) have no counterpart: here they are text, as by Connect's SimpleHeaderConverter")
	}
}
