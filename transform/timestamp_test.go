package transform

import (
	"errors"
	"testing"
	"time"
)

func TestParseTimestamp(t *testing.T) {
	for _, tt := range []struct {
		oid        uint32
		text, want string
	}{
		{typeTimestamptz, "2026-08-01 12:34:56+00", "2026-08-01T12:34:56Z"},
		{typeTimestamptz, "2026-08-01 12:34:56.1-03", "2026-08-01T15:34:56.1Z"},
		{typeTimestamptz, "2026-08-01 12:34:56.123456+05:30", "2026-08-01T07:04:56.123456Z"},
		{typeTimestamptz, "1980-01-01 00:00:00+00:19:32", "1979-12-31T23:40:28Z"},
		{typeTimestamptz, "2024-02-29 23:59:59-12", "2024-03-01T11:59:59Z"},
		{typeTimestamp, "1970-01-01 00:00:00", "1970-01-01T00:00:00Z"},
		{typeTimestamp, "9999-12-31 23:59:59.999999", "9999-12-31T23:59:59.999999Z"},
		{typeInt8, "1553460779123", "2019-03-24T20:52:59.123Z"},
		{typeInt8, "0", "1970-01-01T00:00:00Z"},
	} {
		got, err := parseTimestamp(tt.oid, []byte(tt.text))
		if err != nil || got.Format(time.RFC3339Nano) != tt.want {
			t.Errorf("parseTimestamp(%d, %s) = %v, %v, want %s", tt.oid, tt.text, got, err, tt.want)
		}
	}
}

func TestParseTimestampRefuses(t *testing.T) {
	for _, tt := range []struct {
		oid  uint32
		text string
		want error
	}{
		{typeTimestamptz, "infinity", errTimestampRange},
		{typeTimestamp, "-infinity", errTimestampRange},
		{typeTimestamptz, "0001-01-01 00:00:00+00 BC", errTimestampRange},
		{typeTimestamptz, "294276-12-31 23:59:59+00", errTimestampRange},
		{typeTimestamptz, "1969-12-31 23:59:59.999999+00", errTimestampRange},
		{typeTimestamptz, "1970-01-01 00:00:00+00:00:01", errTimestampRange},
		{typeInt8, "-1", errTimestampRange},
		{typeInt8, "9223372036854775807", errTimestampRange},
		{typeInt8, "253402300800000", errTimestampRange},
		{typeInt8, "1.5", errMilliseconds},
		{typeInt8, "", errMilliseconds},
		{typeTimestamptz, "", errTimestampForm},
		{typeTimestamptz, "2026-08-01 12:34:56", errTimestampForm},
		{typeTimestamp, "2026-08-01 12:34:56+00", errTimestampForm},
		{typeTimestamptz, "2026-08-01 12:34:56+0", errTimestampForm},
		{typeTimestamptz, "2026-08-01 12:34:56+00:", errTimestampForm},
		{typeTimestamptz, "2026-08-01 12:34:56+00:00:00:00", errTimestampForm},
		{typeTimestamptz, "2026-08-01 12:34:56.+00", errTimestampForm},
		{typeTimestamp, "2026-08-01 12:34:56.1234567890", errTimestampForm},
		{typeTimestamp, "2026-02-30 12:34:56", errTimestampForm},
		{typeTimestamp, "2026-13-01 12:34:56", errTimestampForm},
		{typeTimestamp, "2026-08-01 24:00:00", errTimestampForm},
		{typeTimestamp, "2026-08-01T12:34:56", errTimestampForm},
		{typeTimestamptz, "Sat Aug 01 12:34:56 2026 UTC", errTimestampForm},
	} {
		if got, err := parseTimestamp(tt.oid, []byte(tt.text)); !errors.Is(err, tt.want) {
			t.Errorf("parseTimestamp(%d, %s) = %v, %v, want %v", tt.oid, tt.text, got, err, tt.want)
		}
	}
}

// FuzzParseTimestamp checks that whatever parses is in range and printed in
// PostgreSQL's format parses to itself.
func FuzzParseTimestamp(f *testing.F) {
	f.Add("2026-08-01 12:34:56.123456+05:30")
	f.Add("infinity")
	f.Add("0044-03-15 12:00:00+00 BC")
	f.Add("1553460779000")
	f.Fuzz(func(t *testing.T, text string) {
		for _, oid := range []uint32{typeTimestamptz, typeTimestamp, typeInt8} {
			got, err := parseTimestamp(oid, []byte(text))
			if err != nil {
				continue
			}
			if ms := got.UnixMilli(); ms < 0 || ms > maxTimestampMillis {
				t.Fatalf("parseTimestamp(%d, %q) = %v, out of range", oid, text, got)
			}
			printed := got.Format("2006-01-02 15:04:05.999999999") + "+00"
			again, err := parseTimestamp(typeTimestamptz, []byte(printed))
			if err != nil || !again.Equal(got) {
				t.Fatalf("%q → %v → %q → %v, %v", text, got, printed, again, err)
			}
		}
	})
}
