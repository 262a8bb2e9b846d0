package avro

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

const secondsPerDay = 24 * 60 * 60

// layout is the form of a logical type of time in text.
func layout(logical string) string {
	switch {
	case logical == "date":
		return time.DateOnly
	case strings.HasPrefix(logical, "time-"):
		return "15:04:05"
	case strings.HasPrefix(logical, "local-"):
		return "2006-01-02T15:04:05"
	}
	return time.RFC3339
}

// unit is the length of a logical type's unit.
func unit(logical string) time.Duration {
	switch {
	case strings.HasSuffix(logical, "-millis"):
		return time.Millisecond
	case strings.HasSuffix(logical, "-micros"):
		return time.Microsecond
	}
	return time.Nanosecond
}

// moment reads a text of a date or a time as the number of the logical type.
func moment(logical, text string) (int64, error) {
	form := layout(logical)
	t, err := time.Parse(form, text)
	if err != nil || digits(text) > 9 || strings.Contains(text, ",") {
		return 0, fmt.Errorf("%.40q is no %s, like %s", text, logical, strings.Replace(form, "Z07:00", "Z", 1))
	}
	if logical == "date" {
		return t.Unix() / secondsPerDay, nil // midnight: exact also before 1970
	}
	step := unit(logical)
	if t.Nanosecond()%int(step) != 0 {
		return 0, fmt.Errorf("%.40q is finer than %s", text, logical)
	}
	seconds := t.Unix()
	if strings.HasPrefix(logical, "time-") {
		seconds = int64(t.Hour()*3600 + t.Minute()*60 + t.Second())
	}
	perSecond := int64(time.Second / step)
	total := seconds*perSecond + int64(t.Nanosecond())/int64(step)
	if (total-int64(t.Nanosecond())/int64(step))/perSecond != seconds {
		return 0, fmt.Errorf("%.40q is out of the range of %s", text, logical)
	}
	return total, nil
}

// digits counts the digits of the fraction of a second.
func digits(text string) (n int) {
	_, fraction, _ := strings.Cut(text, ".")
	for n < len(fraction) && '0' <= fraction[n] && fraction[n] <= '9' {
		n++
	}
	return n
}

var errUUID = errors.New("is no UUID, like f81d4fae-7dec-11d0-a765-00a0c91e6bf6")

// parseUUID reads the usual form with hyphens.
func parseUUID(text []byte) (id [16]byte, err error) {
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return id, errUUID
	}
	short := make([]byte, 0, 32)
	for _, part := range [][]byte{text[:8], text[9:13], text[14:18], text[19:23], text[24:]} {
		short = append(short, part...)
	}
	if _, err := hex.Decode(id[:], short); err != nil {
		return id, errUUID
	}
	return id, nil
}
