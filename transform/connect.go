package transform

import (
	"encoding/base64"
	"math/big"
	"strconv"
	"time"
)

// A connectValue is a value of Kafka Connect's data model, as Debezium makes it of a
// column's text: nil, bool, int64, float32, float64, string, []byte, decimal, date,
// []connectValue, or object. Connect's converters each have a form for it: JSON, the
// text of a header, and Java's toString.
type connectValue any

// decimal is a BigDecimal of Java, unscaled × 10^-scale.
type decimal struct {
	unscaled *big.Int
	scale    int
}

// date is a Date of Java, the form of dates and times under time_precision_mode
// connect. number is its form in JSON.
type date struct {
	millis int64
	number int64
}

// object is a struct or a map, with its members in their order.
type object []member

type member struct {
	name  string
	value connectValue
}

// connectJSON appends v as Connect's JsonConverter writes it without schemas.
func connectJSON(dst []byte, v connectValue) []byte {
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(dst, v)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case float32:
		return appendJSONFloat(dst, float64(v), 32)
	case float64:
		return appendJSONFloat(dst, v, 64)
	case string:
		return appendQuoted(dst, v)
	case []byte:
		return appendBase64(dst, v)
	case decimal:
		return appendBase64(dst, twosComplement(v.unscaled))
	case date:
		return strconv.AppendInt(dst, v.number, 10)
	case []connectValue:
		return appendList(dst, v, connectJSON)
	case object:
		return appendObject(dst, v, connectJSON)
	}
	return append(dst, "null"...)
}

// connectHeader appends v as Connect's SimpleHeaderConverter writes it.
func connectHeader(dst []byte, v connectValue) []byte {
	switch v := v.(type) {
	case string:
		return append(dst, v...)
	case []byte:
		return base64.StdEncoding.AppendEncode(dst, v)
	}
	return headerMember(dst, v)
}

// headerMember appends v as SimpleHeaderConverter does within another value.
func headerMember(dst []byte, v connectValue) []byte {
	switch v := v.(type) {
	case float32:
		return appendJavaFloat(dst, float64(v), 32)
	case float64:
		return appendJavaFloat(dst, v, 64)
	case string:
		return appendHeaderString(dst, v)
	case decimal:
		return v.append(dst)
	case date:
		return v.appendHeader(dst)
	case []connectValue:
		return appendList(dst, v, headerMember)
	case object:
		return appendObject(dst, v, headerMember)
	}
	return connectJSON(dst, v)
}

// connectText appends v as Java's toString, hence Connect's StringConverter, writes
// it. Bytes have none.
func connectText(dst []byte, v connectValue) []byte {
	switch v := v.(type) {
	case string:
		return append(dst, v...)
	case float32, float64, decimal:
		return headerMember(dst, v)
	case []connectValue:
		dst = append(dst, '[')
		for i, element := range v {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = connectText(dst, element)
		}
		return append(dst, ']')
	case object:
		dst = append(dst, '{')
		for i, m := range v {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = connectText(append(append(dst, m.name...), '='), m.value)
		}
		return append(dst, '}')
	}
	return connectJSON(dst, v)
}

// connectPayload appends v as the payload of a record: bytes as they are
// (BinaryDataConverter), and Java's text of others.
func connectPayload(dst []byte, v connectValue) []byte {
	if data, ok := v.([]byte); ok {
		return append(dst, data...)
	}
	return connectText(dst, v)
}

func appendList(dst []byte, list []connectValue, write func([]byte, connectValue) []byte) []byte {
	dst = append(dst, '[')
	for i, v := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = write(dst, v)
	}
	return append(dst, ']')
}

func appendObject(dst []byte, o object, write func([]byte, connectValue) []byte) []byte {
	dst = append(dst, '{')
	for i, m := range o {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(write(dst, m.name), ':')
		dst = write(dst, m.value)
	}
	return append(dst, '}')
}

func appendBase64(dst, data []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, data)
	return append(dst, '"')
}

// appendHeaderString appends a string within a header's value: Connect escapes
// quotes and backslashes alone.
func appendHeaderString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, s[i])
	}
	return append(dst, '"')
}

const millisPerDay = 24 * 60 * 60 * 1000

// appendHeader chooses the form by the value, as Connect's Values does: a time for
// all before the second day of 1970.
func (d date) appendHeader(dst []byte) []byte {
	t := time.UnixMilli(d.millis).UTC()
	switch {
	case d.millis < millisPerDay:
		return t.AppendFormat(dst, "15:04:05.000Z")
	case d.millis%millisPerDay == 0:
		return t.AppendFormat(dst, "2006-01-02")
	}
	return t.AppendFormat(dst, "2006-01-02T15:04:05.000Z")
}
