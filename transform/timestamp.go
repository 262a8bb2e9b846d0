package transform

import (
	"errors"
	"strconv"
	"time"
)

var (
	errTimestampForm  = errors.New("it is not in PostgreSQL's ISO format")
	errTimestampRange = errors.New("a record's timestamp must be between 1970 and 9999")
	errMilliseconds   = errors.New("it is no number of milliseconds since 1970")
)

// Kafka takes no negative timestamp (-1 means none), and RFC 3339, in which
// tools show them, no year of five digits.
const maxTimestampMillis = 253402300799999 // 9999-12-31T23:59:59.999Z

// parseTimestamp reads a timestamp, taken as UTC, a timestamptz, or an int8 of
// milliseconds.
func parseTimestamp(oid uint32, text []byte) (time.Time, error) {
	if oid == typeInt8 {
		ms, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil {
			return time.Time{}, errMilliseconds
		}
		return inRange(time.UnixMilli(ms).UTC(), ms)
	}
	t, err := parseISO(text, oid == typeTimestamptz)
	if err != nil {
		return time.Time{}, err
	}
	return inRange(t, t.UnixMilli())
}

func inRange(t time.Time, ms int64) (time.Time, error) {
	if ms < 0 || ms > maxTimestampMillis {
		return time.Time{}, errTimestampRange
	}
	return t, nil
}

// parseISO reads 2026-08-01 12:34:56.123456+05:30, as DateStyle ISO prints it
// (PostgreSQL's EncodeDateTime): up to six digits of fraction, a zone of hours
// and, where not zero, minutes and seconds. Years of more than four digits, BC
// and infinity are out of range.
func parseISO(text []byte, zoned bool) (time.Time, error) {
	const seconds = "2026-08-01 12:34:56"
	if s := string(text); s == "infinity" || s == "-infinity" || len(s) > 3 && s[len(s)-3:] == " BC" || len(s) > 4 && isDigit(s[4]) {
		return time.Time{}, errTimestampRange
	}
	if len(text) < len(seconds) || text[4] != '-' || text[7] != '-' || text[10] != ' ' || text[13] != ':' || text[16] != ':' {
		return time.Time{}, errTimestampForm
	}
	year, month, day := number(text[:4]), number(text[5:7]), number(text[8:10])
	hour, minute, second := number(text[11:13]), number(text[14:16]), number(text[17:19])
	nanos, rest := fraction(text[19:])
	offset, ok := zone(rest, zoned)
	if !ok || year < 0 || month < 1 || month > 12 || day < 1 || day > 31 ||
		hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59 || nanos < 0 {
		return time.Time{}, errTimestampForm
	}
	t := time.Date(year, time.Month(month), day, hour, minute, second, nanos, time.UTC)
	if t.Day() != day {
		return time.Time{}, errTimestampForm // 30 February
	}
	return t.Add(-offset), nil
}

// fraction reads .123456 into nanoseconds, -1 where the digits are missing.
func fraction(text []byte) (nanos int, rest []byte) {
	if len(text) == 0 || text[0] != '.' {
		return 0, text
	}
	end := 1
	for end < len(text) && end <= 9 && isDigit(text[end]) {
		end++
	}
	nanos = number(text[1:end])
	for range 10 - end {
		nanos *= 10
	}
	return nanos, text[end:]
}

// zone reads +05, -03:30 or +05:53:28; without zoned, text must be empty.
func zone(text []byte, zoned bool) (offset time.Duration, ok bool) {
	if !zoned {
		return 0, len(text) == 0
	}
	if len(text) < 3 || text[0] != '+' && text[0] != '-' {
		return 0, false
	}
	negative := text[0] == '-'
	text = text[1:]
	for unit := time.Hour; unit >= time.Second; unit /= 60 {
		n := -1
		if len(text) >= 2 {
			n = number(text[:2])
		}
		if n < 0 {
			return 0, false
		}
		offset += time.Duration(n) * unit
		if text = text[2:]; len(text) == 0 {
			break
		}
		if text[0] != ':' {
			return 0, false
		}
		text = text[1:]
	}
	if negative {
		offset = -offset
	}
	return offset, len(text) == 0
}

// number reads decimal digits and nothing else, or returns -1.
func number(digits []byte) int {
	if len(digits) == 0 {
		return -1
	}
	n := 0
	for _, c := range digits {
		if !isDigit(c) {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	return n
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
