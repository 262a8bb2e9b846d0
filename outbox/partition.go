package outbox

import (
	"fmt"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// Span is how long a partition lasts. All are cut in UTC.
type Span uint8

// The spans.
const (
	Daily  Span = iota // outbox_p20260101
	Hourly             // outbox_p20260101_15
)

// Partition is a partition of an outbox table partitioned by the time of
// writing, as in PartitionedSchema. Table.Partition makes a Partition; for
// another span, make one by hand.
type Partition struct {
	// Table is the partitioned table.
	Table Table
	// Name is the partition's name, in the table's schema.
	Name string
	// From is the first moment, To the next partition's.
	From, To time.Time
}

// Partition returns the partition for a moment; for the one after p, ask for
// t.Partition(span, p.To). An error means that the name would be too long, or
// that there is no statement for the span or the table.
func (t Table) Partition(span Span, at time.Time) (Partition, error) {
	t = t.withDefaults()
	at = at.UTC()
	p := Partition{Table: t}
	switch span {
	case Daily:
		p.From = time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC)
		p.To = p.From.AddDate(0, 0, 1)
		p.Name = t.Name + p.From.Format("_p20060102")
	case Hourly:
		p.From = at.Truncate(time.Hour)
		p.To = p.From.Add(time.Hour)
		p.Name = t.Name + p.From.Format("_p20060102_15")
	default:
		return Partition{}, fmt.Errorf("span %d is neither Daily nor Hourly", span)
	}
	if err := checkIdentifier("partition", p.Name); err != nil {
		return Partition{}, err
	}
	if strings.Contains(t.quoted(), bodyQuote) {
		return Partition{}, fmt.Errorf("table %s: its name must not contain %s", t.quoted(), bodyQuote)
	}
	return p, nil
}

// bodyQuote encloses the body of a DO block.
const bodyQuote = "$partition$"

// createPartition attaches a new table instead of creating it as a partition:
// to attach a table locks out neither readers nor writers of the others. The
// lock is the attachment's; taken first, it makes a second process wait and
// see. Identity columns belong to the partitioned table: PostgreSQL 17 and
// later refuse to attach a table with one of its own.
const createPartition = `DO ` + bodyQuote + `
BEGIN
    LOCK TABLE ONLY %[1]s IN SHARE UPDATE EXCLUSIVE MODE;
    IF to_regclass(%[2]s) IS NULL THEN
        CREATE TABLE %[3]s (LIKE %[1]s INCLUDING ALL EXCLUDING IDENTITY);
        ALTER TABLE %[1]s ATTACH PARTITION %[3]s FOR VALUES FROM (%[4]s) TO (%[5]s);
    END IF;
END
` + bodyQuote

// SQL is the statement creating the partition unless it exists. Run it as the
// table's owner, ahead of time. It waits for other changes to the table's
// definition, not for transactions writing events, except for those that wrote
// to the default partition; that one is searched for rows that belong into the
// new one, and such a row is an error.
func (p Partition) SQL() string {
	table := p.Table.withDefaults()
	partition := table
	partition.Name = p.Name
	const bound = "2006-01-02 15:04:05+00"
	return fmt.Sprintf(createPartition, table.quoted(), pgsql.Literal(partition.quoted()), partition.quoted(),
		pgsql.Literal(p.From.UTC().Format(bound)), pgsql.Literal(p.To.UTC().Format(bound)))
}
