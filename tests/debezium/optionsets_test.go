package debezium

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// optionSet are options for records, there and here.
type optionSet struct {
	set
	event transform.EventOptions
	route transform.RouteOptions
}

// An option changes a set on both sides.
type option func(*optionSet)

// router sets an option of the transformation there, and changes ours.
func router(name, value string, ours func(*transform.EventOptions, *transform.RouteOptions)) option {
	return func(s *optionSet) {
		s.Router[name] = value
		ours(&s.event, &s.route)
	}
}

func event(name, value string, ours func(*transform.EventOptions)) option {
	return router(name, value, func(ev *transform.EventOptions, _ *transform.RouteOptions) { ours(ev) })
}

func unchanged(*optionSet) {}

// Each choice is one of several options.
var (
	valueChoice = []option{
		unchanged, func(s *optionSet) { s.Value = bytesConverter },
		value(false, false), value(true, false), value(false, true), value(true, true),
		value(false, true), value(true, true), value(true, true), // the most to go wrong
	}
	keyChoice = []option{
		unchanged,
		func(s *optionSet) { s.Key, s.event.KeyFormat = jsonConverter, transform.KeyJSON },
		func(s *optionSet) {
			s.Key, s.event.KeyFormat, s.event.Debezium.KeySchemas = schemaConverter, transform.KeyJSON, true
		},
	}
	keyColumnChoice = append([]option{unchanged, unchanged}, each([]string{"akey", "id", "n", "d", "tz", "en", "flag", "ts"}, func(column string) option {
		return event("table.field.event.key", column, func(ev *transform.EventOptions) { ev.Key = column })
	})...)
	payloadChoice = append([]option{unchanged, unchanged, unchanged, unchanged, unchanged, unchanged, unchanged}, each([]string{"n", "d", "hs", "tenant"}, func(column string) option {
		return event("table.field.event.payload", column, func(ev *transform.EventOptions) { ev.Payload = column })
	})...)
	timestampChoice = append([]option{unchanged, unchanged}, each([]string{"ts", "ts3"}, func(column string) option {
		return event("table.field.event.timestamp", column, func(ev *transform.EventOptions) { ev.Timestamp = column })
	})...)
	versionChoice = []option{unchanged, unchanged, event("table.field.event.schema.version", "ver", func(ev *transform.EventOptions) { ev.SchemaVersion = "ver" })}
	tombstone     = []option{unchanged, event("route.tombstone.on.empty.payload", "true", func(ev *transform.EventOptions) { ev.TombstoneOnEmptyPayload = true })}
	nullChoice    = []option{unchanged, event("table.json.payload.null.behavior", "optional_bytes", func(ev *transform.EventOptions) { ev.NullBehavior = transform.NullOptionalBytes })}
	emptyChoice   = []option{unchanged, event("table.json.payload.empty.array.behavior", "optional_string", func(ev *transform.EventOptions) {
		ev.EmptyArrayBehavior = transform.EmptyArrayOptionalString
	})}
	byChoice = []option{
		unchanged, unchanged, unchanged,
		router("route.by.field", "type", func(_ *transform.EventOptions, r *transform.RouteOptions) { r.By = "type" }),
		router("route.by.field", "en", func(_ *transform.EventOptions, r *transform.RouteOptions) { r.By = "en" }),
	}
	routeChoice = append([]option{unchanged, unchanged}, each([][2]string{
		{`(.*)\.(.*)`, `$2-$1`}, {`[^.]+`, `x`}, {`(?<a>[a-z]+).*`, `t.${a}`}, {`(.*?)`, `$1.t`}, {`o.der`, `one`}, {`(?i)ORDER(s?)`, `o$1`},
		{`(?i)\w+\W?.*`, `w`}, {`\s*(\S+)\s*`, `s-$1`}, {`(a|b$)|(.+)$`, `e.$2`}, {`[\s\w.]+`, `ws`}, {`(.+)`, `__$1`}, {`x{2,3}|(?:o)(rder)?.?`, `g$1`},
		{`[^a-m]*`, `neg`}, {`[^\S]*[\S]+`, `ns`}, {`^(.)(.)(.)(.)(.*)$`, `$4$3.$11`},
	}, func(re [2]string) option {
		return func(s *optionSet) {
			s.Router["route.topic.regex"], s.Router["route.topic.replacement"] = re[0], re[1]
			s.route.Regex, s.route.Topic = re[0], re[1]
		}
	})...)
)

// additional are columns to be placed as headers or in the envelope.
var additional = []string{"type", "tenant", "n", "big", "f", "f4", "d", "num", "ts", "ts3", "tz", "dt", "tm", "iv", "flag", "b", "en", "arr", "ints", "hs", "u", "missing"}

var schemaConverter = properties{"class": "org.apache.kafka.connect.json.JsonConverter"}

func each[T any](list []T, of func(T) option) (out []option) {
	for _, item := range list {
		out = append(out, of(item))
	}
	return out
}

// value chooses the JsonConverter for values.
func value(schemas, expanded bool) option {
	return func(s *optionSet) {
		s.Value, s.event.PayloadFormat = jsonConverter, transform.FormatJSON
		if schemas {
			s.Value, s.event.Debezium.ValueSchemas = schemaConverter, true
		}
		if expanded {
			s.Router["table.expand.json.payload"] = "true"
			s.event.PayloadFormat = transform.FormatJSONExpanded
		}
	}
}

// generateSet makes a set by chance, under handling modes of the connector.
func generateSet(r *rand.Rand, mode transform.Handling) optionSet {
	s := optionSet{set: set{Router: properties{}, Key: stringConverter, Value: stringConverter}, event: transform.DefaultEvent(), route: transform.DefaultRoute()}
	s.event.Compat, s.event.Debezium = transform.CompatDebezium, mode
	s.event.TypeHeader, s.event.PositionHeaders, s.event.Headers, s.event.Tracing = "", false, transform.HeadersNone, transform.HeadersNone
	s.event.NullKey, s.event.InvalidJSON = transform.NullKeyPublish, transform.InvalidJSONPublish
	s.route.Underscores = true
	for _, choice := range [][]option{
		valueChoice, keyChoice, keyColumnChoice, payloadChoice, timestampChoice, versionChoice, tombstone, nullChoice, emptyChoice, byChoice, routeChoice,
	} {
		choice[r.IntN(len(choice))](&s)
	}
	s.place(r)
	return s
}

// place puts some columns into headers or the envelope.
func (s *optionSet) place(r *rand.Rand) {
	taken := map[string]bool{}
	for range r.IntN(5) {
		column, placement := additional[r.IntN(len(additional))], []string{"header", "envelope"}[r.IntN(2)]
		alias := column
		if r.IntN(2) == 0 {
			alias = "x-" + column
		}
		if placement == "envelope" && s.event.PayloadFormat == transform.FormatRaw || taken[placement+alias] {
			continue
		}
		taken[placement+alias] = true
		s.event.Additional = append(s.event.Additional, fmt.Sprintf("%s:%s:%s", column, placement, alias))
	}
	if r.IntN(6) == 0 {
		s.event.Additional = append(s.event.Additional, "part:partition")
	}
	if len(s.event.Additional) > 0 {
		s.Router["table.fields.additional.placement"] = strings.Join(s.event.Additional, ",")
	}
	s.Router["table.field.additional.missing"], s.event.AdditionalMissing = "ignore", transform.MissingIgnore
}
