package transform

import (
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// convert gives the columns of the record Debezium's forms, and refuses those without
// a form for their place.
func (b *binder) convert(p *plan, ev EventOptions) {
	b.conversion(&p.id)
	if p.id.as != nil {
		b.unfit("event.id", p.id, "name a column of type uuid, text or an integer")
	}
	b.conversion(&p.key)
	if p.key.as != nil && !p.key.as.textual {
		b.unfit("event.key", p.key, "name another column, or leave event.compat out")
	}
	b.conversion(&p.payload)
	raw := ev.PayloadFormat == FormatRaw && len(p.envelope) == 0
	if as := p.payload.as; as != nil && raw && !as.textual && !as.bytes {
		b.unfit("event.payload", p.payload, "set event.payload_format to json, or leave event.compat out")
	}
	b.conversion(&p.eventType)
	for i := range p.headers {
		b.conversion(&p.headers[i].column)
	}
	for i := range p.envelope {
		b.conversion(&p.envelope[i].column)
	}
}

// conversion finds the column's conversion.
func (b *binder) conversion(c *column) {
	if !c.present {
		return
	}
	as, err := b.handling.of(b.rel.Columns[c.index])
	if err != nil {
		b.errs = append(b.errs, err)
	}
	c.as = as
}

// unfit adds the error of a column that Debezium writes in a form of no use.
func (b *binder) unfit(key string, c column, remedy string) {
	b.errs = append(b.errs, failure.Configf(remedy,
		"%s: column %q of %s is of the type with OID %d, of which Debezium's text depends on the process or the version of Java", key, c.name, b.table, c.oid))
}
