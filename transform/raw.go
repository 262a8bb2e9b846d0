package transform

import (
	"bytes"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// raw makes the event of a row without a required column: the value is an
// object of all the columns, each as PostgreSQL's text or null. Id and key are
// there if their columns are.
func (b *builder) raw() {
	b.reject(ReasonMissingColumn, b.plan.unfit)
	b.event.ID = b.text(b.plan.id)
	b.event.Record.Key = b.text(b.plan.key)
	value := []byte{'{'}
	for i, c := range b.plan.rel.Columns {
		if i > 0 {
			value = append(value, ',')
		}
		value = append(appendQuoted(value, bytes.ToValidUTF8([]byte(c.Name), replacementCharacter)), ':')
		if v := b.values[i]; v.Kind == pg.Null || v.Kind == pg.UnchangedToast {
			value = append(value, "null"...)
		} else {
			value = appendQuoted(value, bytes.ToValidUTF8(v.Data, replacementCharacter))
		}
	}
	value = append(value, '}')
	b.event.Record.Value = value
	b.event.made += cap(value)
}

// replacementCharacter may stand for invalid bytes of a database with the
// encoding SQL_ASCII.
var replacementCharacter = []byte("\uFFFD")
