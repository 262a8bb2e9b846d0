package checkpoint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// scopeMessages begins a scope's part of messages.
const scopeMessages = "messages:"

// Following returns the checkpoint with the present names of the tables. A table known by
// its OID, under another name, was renamed, or moved to another schema: it is the same
// table, read up to here.
func (c Checkpoint) Following(tables []catalog.TableInfo) Checkpoint {
	names := make(map[string]string) // present names by former names
	for _, t := range tables {
		if i := c.Owned.now(t.OID); i >= 0 && c.Owned[i].Name != "" && c.Owned[i].Name != t.String() {
			names[c.Owned[i].Name] = t.String()
		}
	}
	if len(names) == 0 {
		return c
	}
	c.Publication = catalog.RenameTables(c.Publication, names)
	c.Scope = renamedScope(c.Scope, names)
	c.Owned = slices.Clone(c.Owned)
	for i, t := range c.Owned {
		if t.Until == 0 {
			c.Owned[i].Name = cmp.Or(names[t.Name], t.Name)
		}
	}
	return c
}

// renamedScope is Scope with other names of tables.
func renamedScope(scope string, names map[string]string) string {
	var parts []string
	messages, read := "", 0
	for name := range pg.SplitNames(scope) {
		if strings.HasPrefix(name, scopeMessages) {
			messages = scope[read:] // with any comma inside
			break
		}
		parts = append(parts, cmp.Or(names[name], name))
		read += len(name) + len(",")
	}
	slices.Sort(parts)
	if messages != "" {
		parts = append(parts, messages)
	}
	return strings.Join(parts, ",")
}

// Unread judges the view's error of an unreadable table. called returns the present name
// of a table by its OID, the zero Table for none. The error is a loss only if rows of a
// table read before may have been left out since. For a table not read yet, or with
// another name now, the class is failure.Config.
func (c *Checkpoint) Unread(v *catalog.View, called func(oid uint32) (pg.Table, error)) error {
	missing := v.Missing()
	switch {
	case missing == nil:
		err := v.UnfitOf(func(t pg.Table) bool { return catalog.FingerprintHas(c.Publication, t) })
		if err == nil {
			return v.Unfit()
		}
		former, asked := c.former(v.Tables, called)
		if asked != nil {
			return asked
		}
		return c.leftOut(fmt.Errorf("%w%s", err, former))
	case !catalog.FingerprintHas(c.Publication, missing.Table):
		return v.Unfit()
	}
	now, err := called(c.Owned.named(missing.Table.String()))
	if err != nil {
		return err
	}
	if now == (pg.Table{}) {
		return c.leftOut(v.Unfit())
	}
	return failure.Configf(catalog.InSourceTables(now)+"; docs/how-to/change-tables.md has the steps of a rename",
		"source.tables: table %s is called %s now, and none of its events is lost", missing.Table, now)
}

// former tells the fate of a table read before, if another table has its name now; "":
// none has.
func (c *Checkpoint) former(tables []catalog.TableInfo, called func(oid uint32) (pg.Table, error)) (string, error) {
	for _, t := range tables {
		oid := c.Owned.named(t.String())
		if oid == 0 || oid == t.OID {
			continue
		}
		now, err := called(oid)
		switch {
		case err != nil:
			return "", err
		case now == (pg.Table{}):
			return fmt.Sprintf("; %s is another table than the one that was read, which was dropped", t), nil
		}
		return fmt.Sprintf("; %s is another table than the one that was read, which is called %s now", t, now), nil
	}
	return "", nil
}

// leftOut is the loss meant by an error of tables read before.
func (c *Checkpoint) leftOut(err error) error {
	if c.Made { // nothing was
		return err
	}
	return failure.Lossf(strings.TrimSuffix(failure.RemedyOf(err), ";")+"; then "+catalog.AcceptGap,
		"%w; events committed after the checkpoint at %s may be left out", err, c.LSN)
}

// named is the OID of the outbox table of the name, or 0.
func (o Owned) named(name string) uint32 {
	for _, t := range o {
		if t.Until == 0 && t.Name == name {
			return t.OID
		}
	}
	return 0
}
