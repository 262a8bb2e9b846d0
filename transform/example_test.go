package transform_test

import (
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// A row of a table with Debezium's columns, with the default options.
func ExampleRouter() {
	cfg := config.Default()
	router, err := transform.New(cfg.Event, cfg.Route)
	if err != nil {
		fmt.Println(err)
		return
	}

	// The stream delivers rows like this one.
	table := &pg.Relation{OID: 16385, Namespace: "public", Name: "outbox"}
	row := &pg.Row{
		Position:   pg.Position{CommitLSN: 0x16B374D848, Seq: 0},
		XID:        777,
		CommitTime: time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC),
		Relation:   table,
	}
	for _, c := range []struct{ name, value string }{
		{"id", "7b1d5a1c-3c1f-4a53-9d0e-0a4fb3c1a001"},
		{"aggregatetype", "order"},
		{"aggregateid", "42"},
		{"type", "OrderCreated"},
		{"payload", `{"total": 10.50}`},
	} {
		table.Columns = append(table.Columns, pg.Column{Name: c.name})
		row.Values = append(row.Values, pg.Value{Kind: pg.Text, Data: []byte(c.value)})
	}

	ev, err := router.Route(row)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s key=%s %s\n", ev.Record.Topic, ev.Record.Key, ev.Record.Value)
	for _, h := range ev.Record.Headers {
		fmt.Printf("  %s: %s\n", h.Key, h.Value)
	}
	// Output:
	// outbox.event.order key=42 {"total": 10.50}
	//   id: 7b1d5a1c-3c1f-4a53-9d0e-0a4fb3c1a001
	//   eventType: OrderCreated
	//   cdc-lsn: 16/B374D848
	//   cdc-seq: 0
	//   cdc-xid: 777
	//   cdc-time: 2026-08-01T12:00:00.000000Z
}
