package transform

import "bytes"

// traceparent returns the W3C trace context header's value from a column with
// either that value or Debezium's tracingspancontext, a serialized
// java.util.Properties with a line traceparent=…; nil where there is none.
func traceparent(data []byte) []byte {
	if value := bytes.TrimSpace(data); validTraceparent(value) {
		return value
	}
	return propertyOf(data, headerTraceparent, validTraceparent)
}

// tracestate returns the header's value from tracingspancontext; nil where there is none.
func tracestate(data []byte) []byte { return propertyOf(data, headerTracestate, validTracestate) }

// propertyOf returns the first valid value of the name in a serialized
// java.util.Properties.
func propertyOf(data []byte, of string, valid func([]byte) bool) []byte {
	for line := range bytes.Lines(data) {
		name, value, ok := property(line)
		if ok && string(name) == of && valid(value) {
			return value
		}
	}
	return nil
}

// property splits a line as java.util.Properties.load does, except for escapes
// and continued lines, which no traceparent has.
func property(line []byte) (name, value []byte, ok bool) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] == '#' || line[0] == '!' {
		return nil, nil, false
	}
	end := bytes.IndexAny(line, "=: \t\f")
	if end < 0 {
		return line, nil, true
	}
	value = bytes.TrimLeft(line[end:], " \t\f")
	if len(value) > 0 && (value[0] == '=' || value[0] == ':') {
		value = value[1:]
	}
	return line[:end], bytes.TrimSpace(value), true
}

// validTraceparent checks version-traceid-parentid-flags as in W3C Trace
// Context §3.2.2. Versions after 00 may append fields; ff is invalid.
func validTraceparent(b []byte) bool {
	const length = 2 + 1 + 32 + 1 + 16 + 1 + 2
	if len(b) < length || b[2] != '-' || b[35] != '-' || b[52] != '-' {
		return false
	}
	version, trace, parent := b[:2], b[3:35], b[36:52]
	if !isHex(version) || !isHex(trace) || !isHex(parent) || !isHex(b[53:55]) {
		return false
	}
	if isZero(trace) || isZero(parent) || string(version) == "ff" {
		return false
	}
	return len(b) == length || string(version) != "00" && b[length] == '-'
}

func isHex(b []byte) bool {
	for _, c := range b {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func isZero(b []byte) bool { return len(bytes.Trim(b, "0")) == 0 }
