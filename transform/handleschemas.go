package transform

import (
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

func semantic(kind, name string) schemaType { return schemaType{kind: kind, name: name, version: 1} }

// fixedSchemas are those of types without a handling mode.
var fixedSchemas = map[uint32]schemaType{
	pgtype.BoolOID: {kind: "boolean"}, pgtype.Int2OID: {kind: "int16"}, pgtype.Int4OID: {kind: "int32"}, pgtype.Int8OID: {kind: "int64"},
	pgtype.OIDOID: {kind: "int64"}, pgtype.Float4OID: {kind: "float"}, pgtype.Float8OID: {kind: "double"},
	pgtype.UUIDOID: semantic("string", "io.debezium.data.Uuid"),
	pgtype.JSONOID: semantic("string", "io.debezium.data.Json"), pgtype.JSONBOID: semantic("string", "io.debezium.data.Json"),
	pgtype.XMLOID: semantic("string", "io.debezium.data.Xml"), pgtype.TSVectorOID: semantic("string", "io.debezium.data.Tsvector"),
	pgtype.TimetzOID: semantic("string", "io.debezium.time.ZonedTime"), pgtype.TimestamptzOID: semantic("string", "io.debezium.time.ZonedTimestamp"),
	pgtype.PointOID: {kind: "struct", name: "io.debezium.data.geometry.Point", version: 1, doc: "Geometry (POINT)", fields: []schemaField{
		{"x", schemaType{kind: "double", required: true}}, {"y", schemaType{kind: "double", required: true}},
		{"wkb", schemaType{kind: "bytes"}}, {"srid", schemaType{kind: "int32"}},
	}},
}

// schema returns the schema of a column with a form under h.
func (h Handling) schema(c pg.Column) schemaType {
	if element, ok := elementTypes[c.Type]; ok {
		return h.arraySchema(pg.Column{Type: element, Modifier: c.Modifier})
	}
	if s, ok := fixedSchemas[c.Type]; ok {
		return s
	}
	switch c.Type {
	case pgtype.NumericOID:
		return h.numericSchema(c.Modifier)
	case moneyOID:
		return h.moneySchema()
	case pgtype.ByteaOID:
		if h.Binary == BinaryBytes {
			return schemaType{kind: "bytes"}
		}
	case pgtype.BitOID, pgtype.VarbitOID:
		return bitsSchema(c.Modifier)
	case pgtype.DateOID:
		return h.dateSchema()
	case pgtype.TimeOID:
		return h.timeSchema(c.Modifier)
	case pgtype.TimestampOID:
		return h.timestampSchema(c.Modifier)
	case pgtype.IntervalOID:
		if h.Interval == IntervalString {
			return semantic("string", "io.debezium.time.Interval")
		}
		return semantic("int64", "io.debezium.time.MicroDuration")
	}
	return h.namedSchema(c)
}

// namedSchema is the schema of an extension's type, or an enum.
func (h Handling) namedSchema(c pg.Column) schemaType {
	switch {
	case c.TypeName == "hstore" && h.HStore == HStoreMap:
		return schemaType{kind: "map", ofMap: true}
	case c.TypeName == "hstore":
		return semantic("string", "io.debezium.data.Json")
	case c.TypeName == "ltree":
		return semantic("string", "io.debezium.data.Ltree")
	case strings.HasPrefix(c.TypeName, "_"):
		return h.arraySchema(pg.Column{TypeName: c.TypeName[1:], Details: c.Details})
	case c.Details.Labels != "":
		s := semantic("string", "io.debezium.data.Enum")
		s.parameters = []parameter{{"allowed", c.Details.Labels}}
		return s
	}
	return schemaType{kind: "string"}
}

func (h Handling) arraySchema(element pg.Column) schemaType {
	items := h.schema(element)
	items.required = items.name == "io.debezium.data.Enum"
	return schemaType{kind: "array", items: &items}
}

func decimalSchema(scale int) schemaType {
	s := semantic("bytes", "org.apache.kafka.connect.data.Decimal")
	s.parameters = []parameter{{"scale", strconv.Itoa(scale)}}
	return s
}

func (h Handling) numericSchema(modifier int32) schemaType {
	switch {
	case h.Decimal == DecimalDouble:
		return schemaType{kind: "double"}
	case h.Decimal == DecimalString:
		return schemaType{kind: "string"}
	case modifier < numericHeader:
		return schemaType{kind: "struct", name: "io.debezium.data.VariableScaleDecimal", version: 1, doc: "Variable scaled decimal", fields: []schemaField{
			{"scale", schemaType{kind: "int32", required: true}}, {"value", schemaType{kind: "bytes", required: true}},
		}}
	}
	precision, scale := numericModifier(modifier)
	s := decimalSchema(scale)
	s.parameters = append(s.parameters, parameter{"connect.decimal.precision", strconv.Itoa(precision)})
	return s
}

func (h Handling) moneySchema() schemaType {
	switch h.Decimal {
	case DecimalDouble:
		return schemaType{kind: "double"}
	case DecimalString:
		return schemaType{kind: "string"}
	}
	return decimalSchema(h.MoneyDigits)
}

func bitsSchema(modifier int32) schemaType {
	if modifier == 1 {
		return schemaType{kind: "boolean"}
	}
	length := int(modifier)
	if modifier < 0 {
		length = 1<<31 - 1
	}
	s := semantic("bytes", "io.debezium.data.Bits")
	s.parameters = []parameter{{"length", strconv.Itoa(length)}}
	return s
}

func (h Handling) dateSchema() schemaType {
	switch h.Time {
	case TimeConnect:
		return semantic("int32", "org.apache.kafka.connect.data.Date")
	case TimeISO:
		return semantic("string", "io.debezium.time.IsoDate")
	}
	return semantic("int32", "io.debezium.time.Date")
}

func (h Handling) timeSchema(modifier int32) schemaType {
	switch {
	case h.Time == TimeConnect:
		return semantic("int32", "org.apache.kafka.connect.data.Time")
	case h.Time == TimeISO:
		return semantic("string", "io.debezium.time.IsoTime")
	case h.Time == TimeNanoseconds:
		return semantic("int64", "io.debezium.time.NanoTime")
	case h.Time == TimeAdaptive && precision(modifier) <= 3:
		return semantic("int32", "io.debezium.time.Time")
	}
	return semantic("int64", "io.debezium.time.MicroTime")
}

func (h Handling) timestampSchema(modifier int32) schemaType {
	switch {
	case h.Time == TimeConnect:
		return semantic("int64", "org.apache.kafka.connect.data.Timestamp")
	case h.Time == TimeISO:
		return semantic("string", "io.debezium.time.IsoTimestamp")
	case h.Time == TimeNanoseconds:
		return semantic("int64", "io.debezium.time.NanoTimestamp")
	case (h.Time == TimeAdaptive || h.Time == TimeAdaptiveMicros) && precision(modifier) <= 3:
		return semantic("int64", "io.debezium.time.Timestamp")
	}
	return semantic("int64", "io.debezium.time.MicroTimestamp")
}
