package transform

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

func TestParseTimestamp(t *testing.T) {
	for _, tt := range []struct {
		oid        uint32
		text, want string
	}{
		{pgtype.TimestamptzOID, "2026-08-01 12:34:56+00", "2026-08-01T12:34:56Z"},
		{pgtype.TimestamptzOID, "2026-08-01 12:34:56.1-03", "2026-08-01T15:34:56.1Z"},
		{pgtype.TimestamptzOID, "2026-08-01 12:34:56.123456+05:30", "2026-08-01T07:04:56.123456Z"},
		{pgtype.TimestamptzOID, "1980-01-01 00:00:00+00:19:32", "1979-12-31T23:40:28Z"},
		{pgtype.TimestamptzOID, "2024-02-29 23:59:59-12", "2024-03-01T11:59:59Z"},
		{pgtype.TimestampOID, "1970-01-01 00:00:00", "1970-01-01T00:00:00Z"},
		{pgtype.TimestampOID, "9999-12-31 23:59:59.999999", "9999-12-31T23:59:59.999999Z"},
		{pgtype.Int8OID, "1553460779123", "2019-03-24T20:52:59.123Z"},
		{pgtype.Int8OID, "0", "1970-01-01T00:00:00Z"},
	} {
		got, err := new(moment).parse(tt.oid, []byte(tt.text))
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
		{pgtype.TimestamptzOID, "infinity", errTimestampRange},
		{pgtype.TimestampOID, "-infinity", errTimestampRange},
		{pgtype.TimestamptzOID, "0001-01-01 00:00:00+00 BC", errTimestampRange},
		{pgtype.TimestamptzOID, "294276-12-31 23:59:59+00", errTimestampRange},
		{pgtype.TimestamptzOID, "1969-12-31 23:59:59.999999+00", errTimestampRange},
		{pgtype.TimestamptzOID, "1970-01-01 00:00:00+00:00:01", errTimestampRange},
		{pgtype.Int8OID, "-1", errTimestampRange},
		{pgtype.Int8OID, "9223372036854775807", errTimestampRange},
		{pgtype.Int8OID, "253402300800000", errTimestampRange},
		{pgtype.Int8OID, "1.5", errMilliseconds},
		{pgtype.Int8OID, "", errMilliseconds},
		{pgtype.TimestamptzOID, "", errTimestampForm},
		{pgtype.TimestamptzOID, "2026-08-01 12:34:56", errTimestampForm},
		{pgtype.TimestampOID, "2026-08-01 12:34:56+00", errTimestampForm},
		{pgtype.TimestamptzOID, "2026-08-01 12:34:56+0", errTimestampForm},
		{pgtype.TimestamptzOID, "2026-08-01 12:34:56+00:", errTimestampForm},
		{pgtype.TimestamptzOID, "2026-08-01 12:34:56+00:00:00:00", errTimestampForm},
		{pgtype.TimestamptzOID, "2026-08-01 12:34:56.+00", errTimestampForm},
		{pgtype.TimestampOID, "2026-02-30 12:34:56", errTimestampForm},
		{pgtype.TimestampOID, "2026-13-01 12:34:56", errTimestampForm},
		{pgtype.TimestampOID, "2026-08-01 24:00:00", errTimestampForm},
		{pgtype.TimestampOID, "2026-08-01T12:34:56", errTimestampForm},
		{pgtype.TimestamptzOID, "Sat Aug 01 12:34:56 2026 UTC", errTimestampForm},
	} {
		if got, err := new(moment).parse(tt.oid, []byte(tt.text)); !errors.Is(err, tt.want) {
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
		for _, oid := range []uint32{pgtype.TimestamptzOID, pgtype.TimestampOID, pgtype.Int8OID} {
			got, err := new(moment).parse(oid, []byte(text))
			if err != nil {
				continue
			}
			if ms := got.UnixMilli(); ms < 0 || ms > maxTimestampMillis {
				t.Fatalf("parseTimestamp(%d, %q) = %v, out of range", oid, text, got)
			}
			printed := got.Format("2006-01-02 15:04:05.999999") + "+00"
			again, err := new(moment).parse(pgtype.TimestamptzOID, []byte(printed))
			if err != nil || !again.Equal(got) {
				t.Fatalf("%q → %v → %q → %v, %v", text, got, printed, again, err)
			}
		}
	})
}
