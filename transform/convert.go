package transform

import (
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// convert gives the columns of the record Debezium's forms, and refuses those without
// a form for their place.
func (b *binder) convert(p *plan, ev EventOptions) {
	b.conversion(&p.id, false)
	if p.id.as != nil {
		b.unfit("event.id", p.id, "name a column of type uuid, text or an integer")
	}
	b.conversion(&p.key, ev.Debezium.KeySchemas)
	if p.key.as != nil && !p.key.as.textual && ev.KeyFormat == KeyRaw {
		b.unfit("event.key", p.key, "name another column, or leave event.compat out")
	}
	b.conversion(&p.payload, ev.Debezium.ValueSchemas)
	raw := ev.PayloadFormat == FormatRaw && len(p.envelope) == 0
	if as := p.payload.as; as != nil && raw && !as.textual && !as.bytes {
		b.unfit("event.payload", p.payload, "set event.payload_format to json, or leave event.compat out")
	}
	b.conversion(&p.eventType, false)
	for i := range p.headers {
		b.conversion(&p.headers[i].column, false)
	}
	for i := range p.envelope {
		b.conversion(&p.envelope[i].column, ev.Debezium.ValueSchemas)
	}
	if p.timestamp.oid == pgtype.TimestampOID {
		b.conversion(&p.timestamp, false)
		p.perMilli = perMilli[ev.Debezium.timestampSchema(b.rel.Columns[p.timestamp.index].Modifier).name]
	}
	b.wantType("event.schema_version", p.version, "int4, as for Debezium", pgtype.Int4OID)
	p.schemaName = schemaPrefix(ev.Debezium.TopicPrefix, b.rel)
}

// perMilli are the units of a timestamp in a millisecond, by the schema. Debezium takes
// others for no timestamp, and ends.
var perMilli = map[string]int64{
	"io.debezium.time.Timestamp": 1, "io.debezium.time.MicroTimestamp": 1_000, "io.debezium.time.NanoTimestamp": 1_000_000,
}

// conversion finds the column's conversion and, if it is shown, the schema.
func (b *binder) conversion(c *column, schema bool) {
	if !c.present {
		return
	}
	of := b.rel.Columns[c.index]
	if known, ok := b.described[of.Name]; ok && of.Details.Kind == 0 {
		of.Details = known
	}
	as, err := b.handling.of(of)
	if err != nil {
		b.errs = append(b.errs, err)
		return
	}
	c.as = as
	c.compat = &columnCompat{standard: standard(of)}
	if schema {
		c.compat.schema = b.handling.columnSchema(*c, of)
	}
}

// unfit adds the error of a column that Debezium writes in a form of no use.
func (b *binder) unfit(key string, c column, remedy string) {
	b.errs = append(b.errs, failure.Configf(remedy,
		"%s: column %q of %s is of the type with OID %d, of which Debezium's text depends on the process or the version of Java", key, c.name, b.table, c.oid))
}
