package store

import (
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// ownedDocument is an OwnedTable in stored form.
type ownedDocument struct {
	OID         uint32            `json:"oid"`
	Name        string            `json:"name,omitempty"`
	Schema      uint32            `json:"schema,omitempty"`
	Since       string            `json:"since,omitempty"`
	Until       string            `json:"until,omitempty"`
	Unsure      string            `json:"unsure,omitempty"`
	Partitioned bool              `json:"partitioned,omitempty"`
	Columns     map[string]string `json:"columns,omitempty"`
}

func ownedDocuments(owned checkpoint.Owned) (docs []ownedDocument) {
	for _, t := range owned {
		d := ownedDocument{OID: t.OID, Name: t.Name, Schema: t.Schema,
			Since: pg.LSNText(t.Since), Until: pg.LSNText(t.Until), Unsure: pg.LSNText(t.Unsure), Partitioned: t.Partitioned}
		for name, since := range t.Columns {
			if d.Columns == nil {
				d.Columns = make(map[string]string, len(t.Columns))
			}
			d.Columns[name] = pg.LSNText(since)
		}
		docs = append(docs, d)
	}
	return docs
}

func ownedOf(docs []ownedDocument) (owned checkpoint.Owned, err error) {
	for _, d := range docs {
		t := checkpoint.OwnedTable{OID: d.OID, Name: d.Name, Schema: d.Schema, Partitioned: d.Partitioned}
		for _, p := range []struct {
			to   *pg.LSN
			text string
		}{{&t.Since, d.Since}, {&t.Until, d.Until}, {&t.Unsure, d.Unsure}} {
			if err == nil {
				*p.to, err = position(p.text)
			}
		}
		for name, since := range d.Columns {
			if t.Columns == nil {
				t.Columns = make(map[string]pg.LSN, len(d.Columns))
			}
			if err == nil {
				t.Columns[name], err = position(since)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("table of OID %d: %w", d.OID, err)
		}
		owned = append(owned, t)
	}
	return owned, nil
}

// position reads pg.LSNText's form.
func position(text string) (pg.LSN, error) {
	if text == "" {
		return 0, nil
	}
	return parseLSN(text)
}
