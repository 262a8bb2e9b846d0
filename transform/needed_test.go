package transform_test

import (
	"slices"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

func TestNeeded(t *testing.T) {
	cfg := config.Default()
	cfg.Event.Additional = []string{"tenant:header"}
	router := must.Get(transform.New(cfg.Event, cfg.Route))(t)
	rel := &pg.Relation{OID: 1, Namespace: "public", Name: "outbox"}
	for _, name := range []string{"id", "aggregatetype", "aggregateid", "aggregate_id", "type", "payload", "tenant", "note"} {
		rel.Columns = append(rel.Columns, pg.Column{Name: name, Type: 25})
	}
	// Either of the two keys would do, type is optional.
	want := []string{"id", "aggregatetype", "payload", "tenant"}
	if got, err := router.Needed(rel); !slices.Equal(got, want) || err != nil {
		t.Errorf("Needed = %v, %v, want %v", got, err, want)
	}
	rel.Columns = rel.Columns[1:]
	if got, err := router.Needed(rel); got != nil || failure.ClassOf(err) != failure.Config {
		t.Errorf("without an id: %v, %v", got, err)
	}
}
