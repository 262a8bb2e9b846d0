package transform

import (
	"bytes"
	"math"
	"strconv"
	"time"
)

const (
	microsPerSecond = 1_000_000
	microsPerDay    = 24 * 60 * 60 * microsPerSecond

	// Debezium's form of the infinities: the ends of PostgreSQL's or Java's range.
	infiniteDay, minusInfiniteDay       = 2146033979, -2147472691
	infiniteMillis, minusInfiniteMillis = 9223372036825200000, -9223372036832400000

	usualPrecision = 6 // of a time without modifier, and the most
)

func precision(modifier int32) int32 {
	if modifier < 0 {
		return usualPrecision
	}
	return min(modifier, usualPrecision)
}

// digits reads a number from the start of text.
func digits(text []byte) (n int64, rest []byte, ok bool) {
	i := 0
	for i < len(text) && isDigit(text[i]) {
		n = 10*n + int64(text[i]-'0')
		i++
	}
	return n, text[i:], i > 0 && i <= 9
}

// after removes the separator.
func after(text []byte, separator byte) ([]byte, bool) {
	if len(text) == 0 || text[0] != separator {
		return text, false
	}
	return text[1:], true
}

var beforeChrist = []byte(" BC")

// parseDay reads year, month and day.
func parseDay(text []byte, bc bool) (day time.Time, rest []byte, ok bool) {
	year, text, ok1 := digits(text)
	text, ok2 := after(text, '-')
	month, text, ok3 := digits(text)
	text, ok4 := after(text, '-')
	number, text, ok5 := digits(text)
	if bc {
		year = 1 - year
	}
	return time.Date(int(year), time.Month(month), int(number), 0, 0, 0, 0, time.UTC), text, ok1 && ok2 && ok3 && ok4 && ok5
}

// parseClock reads hours, minutes, seconds and the fraction as microseconds.
func parseClock(text []byte) (micros int64, rest []byte, ok bool) {
	hours, text, ok1 := digits(text)
	text, ok2 := after(text, ':')
	minutes, text, ok3 := digits(text)
	text, ok4 := after(text, ':')
	seconds, text, ok5 := digits(text)
	micros = (hours*3600 + minutes*60 + seconds) * microsPerSecond
	if len(text) > 0 && text[0] == '.' {
		text = text[1:]
		for unit := int64(microsPerSecond / 10); len(text) > 0 && isDigit(text[0]); unit /= 10 {
			micros += int64(text[0]-'0') * unit
			text = text[1:]
		}
	}
	return micros, text, ok1 && ok2 && ok3 && ok4 && ok5
}

// parseZone reads an offset such as +02 or -03:30:15 as microseconds.
func parseZone(text []byte) (micros int64, ok bool) {
	if len(text) == 0 || text[0] != '+' && text[0] != '-' {
		return 0, false
	}
	sign := int64(1)
	if text[0] == '-' {
		sign = -1
	}
	for unit := int64(3600); ; unit /= 60 {
		n, rest, ok := digits(text[1:])
		micros += n * unit * microsPerSecond
		if text = rest; !ok || len(text) == 0 || text[0] != ':' {
			return sign * micros, ok && len(text) == 0
		}
	}
}

// appendISODay appends a day as Java's LocalDate.toString.
func appendISODay(dst []byte, t time.Time) []byte {
	year := t.Year()
	switch {
	case year > 9999:
		dst = append(dst, '+')
	case year < 0:
		dst = append(dst, '-')
		year = -year
	}
	for limit := 1000; limit > year && limit > 1; limit /= 10 {
		dst = append(dst, '0')
	}
	dst = strconv.AppendInt(dst, int64(year), 10)
	return t.AppendFormat(dst, "-01-02")
}

// appendISOClock appends a time with a fraction of none, three, six digits, as Java's
// ISO formatters do.
func appendISOClock(dst []byte, t time.Time) []byte {
	dst = t.AppendFormat(dst, "15:04:05")
	if t.Nanosecond() != 0 {
		dst = bytes.TrimRight(t.AppendFormat(dst, ".000000"), "0")
	}
	return append(dst, 'Z')
}

func (h Handling) date() *conversion {
	return &conversion{textual: h.Time != TimeConnect, convert: func(text []byte) (connectValue, error) {
		var days int64
		switch string(text) {
		case "infinity":
			days = infiniteDay
		case "-infinity":
			days = minusInfiniteDay
		default:
			text, bc := bytes.CutSuffix(text, beforeChrist)
			day, rest, ok := parseDay(text, bc)
			if !ok || len(rest) > 0 {
				return nil, errForm("date", text)
			}
			days = day.Unix() / (24 * 60 * 60)
		}
		switch h.Time {
		case TimeConnect:
			return date{days * millisPerDay, days}, nil
		case TimeISO:
			day := appendISODay(nil, time.Unix(days*24*60*60, 0).UTC())
			return string(append(day, 'Z')), nil
		}
		return days, nil
	}}
}

func (h Handling) time(modifier int32) *conversion {
	millis := h.Time == TimeAdaptive && precision(modifier) <= 3
	return &conversion{textual: h.Time != TimeConnect, convert: func(text []byte) (connectValue, error) {
		micros, rest, ok := parseClock(text)
		switch {
		case !ok || len(rest) > 0:
			return nil, errForm("time", text)
		case millis:
			return micros / 1000, nil
		}
		switch h.Time {
		case TimeConnect:
			return date{micros / 1000, micros / 1000}, nil
		case TimeISO:
			return string(appendISOClock(nil, time.UnixMicro(micros).UTC())), nil
		case TimeNanoseconds:
			return micros * 1000, nil
		}
		return micros, nil
	}}
}

// convertTimetz makes the time in UTC.
func convertTimetz(text []byte) (connectValue, error) {
	micros, rest, ok := parseClock(text)
	offset, zoned := parseZone(rest)
	if !ok || !zoned {
		return nil, errForm("timetz", text)
	}
	return string(appendISOClock(nil, time.UnixMicro(micros-offset).UTC())), nil
}

func (h Handling) timestamp(modifier int32) *conversion {
	millis := (h.Time == TimeAdaptive || h.Time == TimeAdaptiveMicros) && precision(modifier) <= 3
	return &conversion{textual: h.Time != TimeConnect, convert: func(text []byte) (connectValue, error) {
		var at time.Time
		var micros int64
		switch string(text) {
		case "infinity":
			at, micros = time.UnixMilli(infiniteMillis).UTC(), math.MaxInt64
		case "-infinity":
			at, micros = time.UnixMilli(minusInfiniteMillis).UTC(), math.MinInt64
		default:
			var ok bool
			if at, ok = parseTimestamp(text); !ok {
				return nil, errForm("timestamp", text)
			}
			micros = at.UnixMicro()
		}
		switch {
		case millis:
			return at.UnixMilli(), nil
		case h.Time == TimeConnect:
			return date{at.UnixMilli(), at.UnixMilli()}, nil
		case h.Time == TimeISO:
			return string(appendISOClock(append(appendISODay(nil, at), 'T'), at)), nil
		case h.Time == TimeNanoseconds && (micros == math.MaxInt64 || micros == math.MinInt64):
			return micros, nil
		case h.Time == TimeNanoseconds:
			if micros > math.MaxInt64/1000 || micros < math.MinInt64/1000 {
				return nil, nil
			}
			return micros * 1000, nil
		}
		return micros, nil
	}}
}

// parseTimestamp reads day and time, in UTC.
func parseTimestamp(text []byte) (at time.Time, ok bool) {
	text, bc := bytes.CutSuffix(text, beforeChrist)
	dayText, clockText, _ := bytes.Cut(text, []byte{' '})
	day, rest, ok1 := parseDay(dayText, bc)
	micros, zone, ok2 := parseClock(clockText)
	offset := int64(0)
	if len(zone) > 0 {
		var zoned bool
		offset, zoned = parseZone(zone)
		ok2 = ok2 && zoned
	}
	return day.Add(time.Duration(micros-offset) * time.Microsecond), ok1 && ok2 && len(rest) == 0
}

// timestamptz is text in UTC with as many digits of the second as the column has.
func timestamptz(modifier int32) *conversion {
	form := "T15:04:05"
	if n := precision(modifier); n > 0 {
		form += "." + "000000"[:n]
	}
	return &conversion{textual: true, convert: func(text []byte) (connectValue, error) {
		if bytes.HasSuffix(text, []byte("infinity")) {
			return string(text), nil
		}
		at, ok := parseTimestamp(text)
		if !ok {
			return nil, errForm("timestamptz", text)
		}
		return string(at.AppendFormat(appendISODay(nil, at), form+"Z")), nil
	}}
}
