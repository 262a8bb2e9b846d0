package poll

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/nearest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// mark is an option naming a column for marks of published rows.
type mark struct {
	key, name string
	byDefault string // the name; the table may do without the column
	kind      string
	suits     func(column) bool
}

// marks are source.poll.published and source.poll.published_at.
func marks(opts Options) (flag, time mark) {
	byDefault := DefaultOptions()
	return mark{"source.poll.published", opts.Published, byDefault.Published, "boolean column", column.boolean},
		mark{"source.poll.published_at", opts.PublishedAt, byDefault.PublishedAt, "column with a timestamp", column.time}
}

// in returns the column, if the table has it. Only a default may be missing: a row would
// count as unpublished by other columns than the configuration means, and be published once
// more. otherwise is the remedy if no column suits.
func (m mark) in(table pg.Table, cs columns, otherwise string) (c column, ok bool, err error) {
	if c, ok = cs.find(m.name); ok && m.suits(c) {
		return c, true, nil
	}
	if m.name == m.byDefault || m.name == "" {
		return column{}, false, nil
	}
	return column{}, false, failure.Configf(m.remedy(m.fitting(cs), otherwise), "%s: table %s has no %s %q", m.key, table, m.kind, m.name)
}

func (m mark) remedy(fitting []string, otherwise string) string {
	if len(fitting) == 0 {
		return otherwise
	}
	meant := nearest.To(m.name, fitting)
	if meant == "" && slices.Contains(fitting, m.byDefault) {
		meant = m.byDefault
	}
	if meant == "" {
		return fmt.Sprintf("name a %s of the table (%s)", m.kind, strings.Join(fitting, ", "))
	}
	return fmt.Sprintf("did you mean %s: %s?", m.key, meant)
}

// fitting are the names of the columns the option may name.
func (m mark) fitting(cs columns) (names []string) {
	for _, c := range cs {
		if m.suits(c) {
			names = append(names, c.name)
		}
	}
	return names
}
