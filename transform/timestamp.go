package transform

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

var (
	errTimestampForm  = errors.New("it is not in PostgreSQL's ISO format")
	errTimestampRange = errors.New("a record's timestamp must be between 1970 and 9999")
	errMilliseconds   = errors.New("it is no number of milliseconds since 1970")
)

// Kafka takes no negative timestamp (-1 means none), and RFC 3339, in which
// tools show them, no year of five digits.
const maxTimestampMillis = 253402300799999 // 9999-12-31T23:59:59.999Z

// These read PostgreSQL's output in DateStyle ISO, set by our sessions.
var (
	timestampText   = (&pgtype.TimestampCodec{}).PlanScan(nil, 0, pgtype.TextFormatCode, &moment{})
	timestamptzText = (&pgtype.TimestamptzCodec{ScanLocation: time.UTC}).PlanScan(nil, 0, pgtype.TextFormatCode, &moment{})
)

// moment reads timestamps. It is used again, as each would be an allocation.
type moment struct {
	at       time.Time
	infinite bool
}

// ScanTimestamp takes pgtype's value.
func (m *moment) ScanTimestamp(v pgtype.Timestamp) error {
	m.at, m.infinite = v.Time, v.InfinityModifier != pgtype.Finite
	return nil
}

// ScanTimestamptz takes pgtype's value.
func (m *moment) ScanTimestamptz(v pgtype.Timestamptz) error {
	m.at, m.infinite = v.Time, v.InfinityModifier != pgtype.Finite
	return nil
}

// parse reads a timestamp, taken as UTC, a timestamptz, or an int8 of
// milliseconds.
func (m *moment) parse(oid uint32, text []byte) (time.Time, error) {
	var err error
	switch oid {
	case pgtype.Int8OID:
		var ms int64
		if ms, err = strconv.ParseInt(string(text), 10, 64); err != nil {
			return time.Time{}, errMilliseconds
		}
		m.at, m.infinite = time.UnixMilli(ms).UTC(), false
	case pgtype.TimestampOID:
		err = timestampText.Scan(text, m)
	default:
		err = timestamptzText.Scan(text, m)
	}
	switch {
	case err != nil:
		return time.Time{}, errTimestampForm
	case m.infinite, m.at.UnixMilli() < 0, m.at.UnixMilli() > maxTimestampMillis:
		return time.Time{}, errTimestampRange
	}
	return m.at, nil
}

// debeziumTime is timestamp for a column of Debezium's units. Unlike others, a time beyond
// the year 9999 counts, and infinity is a number.
func (b *builder) debeziumTime(v pg.Value) {
	value, err := b.plan.timestamp.as.convert(v.Data)
	units, ok := value.(int64)
	switch {
	case err == nil && !ok: // beyond the units: as NULL
	case err != nil:
		b.reject(ReasonInvalidTimestamp, fmt.Errorf("column %q is %q: %w", b.plan.timestamp.name, v.Data, err))
	case units < 0:
		b.reject(ReasonInvalidTimestamp, fmt.Errorf("column %q is %q: %w", b.plan.timestamp.name, v.Data, errTimestampRange))
	default:
		b.event.Asked = time.UnixMilli(units / b.plan.perMilli).UTC()
	}
}
