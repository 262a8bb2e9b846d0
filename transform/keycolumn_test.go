package transform_test

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

func TestKeyColumn(t *testing.T) {
	cfg := config.Default()
	router := must.Get(transform.New(cfg.Event, cfg.Route))(t)
	rel := &pg.Relation{OID: 1, Namespace: "public", Name: "outbox"}
	for _, name := range []string{"id", "aggregate_type", "aggregate_id", "payload"} {
		rel.Columns = append(rel.Columns, pg.Column{Name: name, Type: 25})
	}
	if name, err := router.KeyColumn(rel); name != "aggregate_id" || err != nil {
		t.Errorf("KeyColumn = %q, %v", name, err)
	}
	without := &pg.Relation{OID: 2, Name: "outbox", Columns: rel.Columns[:2]}
	if _, err := router.KeyColumn(without); failure.ClassOf(err) != failure.Config {
		t.Errorf("without a key: %v", err)
	}
}
