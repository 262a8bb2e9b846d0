package transform

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// Handling are the handling modes of Debezium's PostgreSQL connector, under
// CompatDebezium, by the names there.
type Handling struct {
	// TopicPrefix is topic.prefix there, for the context headers and the names of
	// schemas; empty: no such headers.
	TopicPrefix string `yaml:"topic_prefix"`

	Decimal  string `yaml:"decimal_handling_mode"`
	Time     string `yaml:"time_precision_mode"`
	Binary   string `yaml:"binary_handling_mode"`
	Interval string `yaml:"interval_handling_mode"`
	HStore   string `yaml:"hstore_handling_mode"`
	// MoneyDigits is the number of digits behind the point of money.
	MoneyDigits int `yaml:"money_fraction_digits"`

	// ExtendedHeaders false leaves out the context headers, whatever the TopicPrefix.
	ExtendedHeaders bool `yaml:"extended_headers_enabled"`
	// KeySchemas and ValueSchemas are schemas.enable of a JsonConverter.
	KeySchemas   bool `yaml:"key_converter_schemas_enable"`
	ValueSchemas bool `yaml:"value_converter_schemas_enable"`
}

// Values of the handling modes.
const (
	DecimalPrecise = "precise"
	DecimalString  = "string"
	DecimalDouble  = "double"

	TimeAdaptive       = "adaptive"
	TimeAdaptiveMicros = "adaptive_time_microseconds"
	TimeConnect        = "connect"
	TimeISO            = "isostring"
	TimeMicroseconds   = "microseconds"
	TimeNanoseconds    = "nanoseconds"

	BinaryBytes     = "bytes"
	BinaryBase64    = "base64"
	BinaryBase64URL = "base64-url-safe"
	BinaryHex       = "hex"

	IntervalNumeric = "numeric"
	IntervalString  = "string"

	HStoreJSON = "json"
	HStoreMap  = "map"
)

// DefaultHandling has Debezium's defaults.
func DefaultHandling() Handling {
	return Handling{
		Decimal:     DecimalPrecise,
		Time:        TimeAdaptive,
		Binary:      BinaryBytes,
		Interval:    IntervalNumeric,
		HStore:      HStoreJSON,
		MoneyDigits: 2,

		ExtendedHeaders: true,
	}
}

func (h *Handling) validate(report setting.Report, compat string) {
	report.OneOf("event.debezium.decimal_handling_mode", h.Decimal, DecimalPrecise, DecimalString, DecimalDouble)
	report.OneOf("event.debezium.time_precision_mode", h.Time,
		TimeAdaptive, TimeAdaptiveMicros, TimeConnect, TimeISO, TimeMicroseconds, TimeNanoseconds)
	report.OneOf("event.debezium.binary_handling_mode", h.Binary, BinaryBytes, BinaryBase64, BinaryBase64URL, BinaryHex)
	report.OneOf("event.debezium.interval_handling_mode", h.Interval, IntervalNumeric, IntervalString)
	report.OneOf("event.debezium.hstore_handling_mode", h.HStore, HStoreJSON, HStoreMap)
	report.Number("event.debezium.money_fraction_digits", h.MoneyDigits, 0, 10)
	if compat == CompatDebezium {
		return
	}
	usual := DefaultHandling()
	for _, mode := range []struct {
		key     string
		changed bool
	}{
		{"event.debezium.topic_prefix", h.TopicPrefix != ""},
		{"event.debezium.decimal_handling_mode", h.Decimal != usual.Decimal},
		{"event.debezium.time_precision_mode", h.Time != usual.Time},
		{"event.debezium.binary_handling_mode", h.Binary != usual.Binary},
		{"event.debezium.interval_handling_mode", h.Interval != usual.Interval},
		{"event.debezium.hstore_handling_mode", h.HStore != usual.HStore},
		{"event.debezium.money_fraction_digits", h.MoneyDigits != usual.MoneyDigits},
		{"event.debezium.extended_headers_enabled", h.ExtendedHeaders != usual.ExtendedHeaders},
		{"event.debezium.key_converter_schemas_enable", h.KeySchemas},
		{"event.debezium.value_converter_schemas_enable", h.ValueSchemas},
	} {
		if mode.changed {
			report.Problem(mode.key, "has no effect without event.compat: debezium", "set event.compat to debezium, or remove the key")
		}
	}
}

// conversion is what Debezium makes of a type's text.
type conversion struct {
	// convert makes the value of a text that is not NULL.
	convert func(text []byte) (connectValue, error)
	bytes   bool // the values are bytes: fit as a payload, without a text
	textual bool // Java's text of a value says what it is
}

// plainTypes have the same forms there and here: integers, bool, text, JSON and others
// that are PostgreSQL's text.
var plainTypes = map[uint32]bool{
	pgtype.BoolOID: true, pgtype.Int2OID: true, pgtype.Int4OID: true, pgtype.Int8OID: true,
	pgtype.TextOID: true, pgtype.VarcharOID: true, pgtype.BPCharOID: true, pgtype.QCharOID: true,
	pgtype.UUIDOID: true, pgtype.JSONOID: true, pgtype.JSONBOID: true, pgtype.XMLOID: true,
	pgtype.InetOID: true, pgtype.CIDROID: true, pgtype.MacaddrOID: true, pgtype.Macaddr8OID: true,
	pgtype.Int4rangeOID: true, pgtype.Int8rangeOID: true, pgtype.NumrangeOID: true,
	pgtype.TsrangeOID: true, pgtype.TstzrangeOID: true, pgtype.DaterangeOID: true, pgtype.TSVectorOID: true,
}

// OIDs that pgtype does not name.
const (
	moneyOID = 790
)

// modified are the types whose values Debezium writes by the type's modifier.
var modified = []uint32{
	pgtype.NumericOID, pgtype.TimestampOID, pgtype.TimestamptzOID, pgtype.TimeOID, pgtype.BitOID,
	pgtype.NumericArrayOID, pgtype.TimestampArrayOID, pgtype.TimestamptzArrayOID, pgtype.TimeArrayOID,
}

// of returns the conversion of a column; nil where the forms are ours. The error says
// why there is none.
func (h Handling) of(c pg.Column) (*conversion, error) {
	if c.Modifier == pg.UnknownModifier && slices.Contains(modified, c.Type) {
		return nil, failure.Configf("give the column the domain's base type, or leave event.compat out",
			"event.compat: column %q has a domain, and the stream does not tell the precision of its values", c.Name)
	}
	if element, ok := elementTypes[c.Type]; ok {
		return h.list(pg.Column{Name: c.Name, Type: element, Modifier: c.Modifier})
	}
	switch {
	case plainTypes[c.Type]:
		return nil, nil
	case unlike(c):
		return nil, failure.Configf("name another column, or leave event.compat out",
			"event.compat: column %q is of the type %s, which Debezium leaves out or writes in a way that is not known here", c.Name, c.TypeName)
	case c.TypeName != "" && c.TypeName[0] != '_' && c.TypeName != "hstore":
		return nil, nil
	case c.TypeName == "hstore":
		return h.hstore(), nil
	case c.TypeName != "" && c.TypeName != "_hstore":
		return h.list(pg.Column{Name: c.Name, TypeName: c.TypeName[1:]})
	}
	switch c.Type {
	case pgtype.OIDOID:
		return &conversion{convert: convertInteger, textual: true}, nil
	case pgtype.Float4OID:
		return &conversion{convert: convertFloat4, textual: true}, nil
	case pgtype.Float8OID:
		return &conversion{convert: convertFloat8, textual: true}, nil
	case pgtype.NumericOID:
		return h.numeric(c.Modifier), nil
	case moneyOID:
		return h.money(), nil
	case pgtype.ByteaOID:
		return h.bytea(), nil
	case pgtype.BitOID, pgtype.VarbitOID:
		return bits(c), nil
	case pgtype.DateOID:
		return h.date(), nil
	case pgtype.TimeOID:
		return h.time(c.Modifier), nil
	case pgtype.TimetzOID:
		return &conversion{convert: convertTimetz, textual: true}, nil
	case pgtype.TimestampOID:
		return h.timestamp(c.Modifier), nil
	case pgtype.TimestamptzOID:
		return timestamptz(c.Modifier), nil
	case pgtype.IntervalOID:
		return h.interval(), nil
	case pgtype.PointOID:
		return &conversion{convert: convertPoint}, nil
	}
	return nil, failure.Configf("name another column, or leave event.compat out",
		"event.compat: column %q is of the type with OID %d, which Debezium leaves out or writes in a way that is not known here", c.Name, c.Type)
}

// textTypes are the base types of extensions with PostgreSQL's text here and there.
var textTypes = []string{"citext", "ltree", "hstore"}

// unlike reports whether a type of the database's own has no form of Debezium's here. A
// stream does not tell enums, which have a form, from others.
func unlike(c pg.Column) bool {
	name := strings.TrimPrefix(c.TypeName, "_")
	switch {
	case name == "", slices.Contains(textTypes, name):
		return false
	case c.Details.Kind == 0, name != c.TypeName && c.Details.Labels != "":
		return false
	}
	return c.Details.Kind != 'e'
}

// errForm is a text that is not PostgreSQL's for the type.
func errForm(kind string, text []byte) error { return fmt.Errorf("%.40q is no %s", text, kind) }
