package catalog

import (
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// registerTypes has a connection read times as UTC, and take the PostgreSQL type of a
// parameter from the Go type: with QueryExecModeExec, pgx does not ask the server. pgx's own
// registry has these and many others, and arrays. Releases are built without
// the registry (nopgxregisterdefaulttypes), and are 1.4 MB smaller.
func registerTypes(types *pgtype.Map) {
	types.RegisterType(&pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC}})
	register[bool](types, "bool")
	register[int16](types, "int2")
	register[int32](types, "int4")
	register[int64](types, "int8")
	register[int](types, "int8")
	register[uint16](types, "int8")
	register[uint32](types, "int8")
	register[uint64](types, "numeric")
	register[uint](types, "numeric")
	register[float32](types, "float4")
	register[float64](types, "float8")
	register[string](types, "text")
	register[[]byte](types, "bytea")
	register[json.RawMessage](types, "json")
	register[time.Time](types, "timestamptz")
	register[time.Duration](types, "interval")
}

// register gives T, *T, and slices of both their type.
func register[T any](types *pgtype.Map, name string) {
	var (
		value    T
		values   []T
		pointers []*T
	)
	types.RegisterDefaultPgType(value, name)
	types.RegisterDefaultPgType(&value, name)
	types.RegisterDefaultPgType(values, "_"+name)
	types.RegisterDefaultPgType(pointers, "_"+name)
}
