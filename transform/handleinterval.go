package transform

import (
	"bytes"
	"math/big"
	"strconv"
)

// span is an interval in PostgreSQL's parts.
type span struct{ years, months, days, micros int64 }

// parseSpan reads the text under IntervalStyle postgres: 1 year 2 mons -3 days
// +04:05:06.789.
func parseSpan(text []byte) (s span, ok bool) {
	words := bytes.Fields(text)
	for len(words) > 1 {
		n, err := strconv.ParseInt(string(words[0]), 10, 64)
		if err != nil {
			return s, false
		}
		switch string(bytes.TrimSuffix(words[1], []byte{'s'})) {
		case "year":
			s.years = n
		case "mon":
			s.months = n
		case "day":
			s.days = n
		default:
			return s, false
		}
		words = words[2:]
	}
	if len(words) == 0 {
		return s, true
	}
	clock, minus := bytes.CutPrefix(words[0], []byte{'-'})
	micros, rest, ok := parseClock(bytes.TrimPrefix(clock, []byte{'+'}))
	if minus {
		micros = -micros
	}
	s.micros = micros
	return s, ok && len(rest) == 0
}

// monthMicros is a twelfth of 365.25 days.
const monthMicros = 365.25 / 12 * microsPerDay

func (s span) total() int64 {
	return (s.years*12+s.months)*monthMicros + s.days*microsPerDay + s.micros
}

// appendISO appends all parts, each with its sign.
func (s span) appendISO(dst []byte) []byte {
	part := func(letter byte, n int64) { dst = append(strconv.AppendInt(dst, n, 10), letter) }
	dst = append(dst, 'P')
	part('Y', s.years)
	part('M', s.months)
	part('D', s.days)
	dst = append(dst, 'T')
	part('H', s.micros/(3600*microsPerSecond))
	part('M', s.micros/(60*microsPerSecond)%60)
	seconds := decimal{big.NewInt(s.micros % (60 * microsPerSecond)), 6}
	return append(seconds.strip().append(dst), 'S')
}

func (h Handling) interval() *conversion {
	return &conversion{textual: true, convert: func(text []byte) (connectValue, error) {
		s, ok := parseSpan(text)
		switch {
		case !ok:
			return nil, errForm("interval", text)
		case h.Interval == IntervalString:
			return string(s.appendISO(nil)), nil
		}
		return s.total(), nil
	}}
}
