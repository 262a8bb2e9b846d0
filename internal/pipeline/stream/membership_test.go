package stream

import (
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

// A table may be a member of the publication by its name and by its schema. As
// long as one of the two lasts nothing is left out, even if the other goes.
func TestMembershipThatLasts(t *testing.T) {
	const (
		addSchema  = `ALTER PUBLICATION cdc_outbox ADD TABLES IN SCHEMA public`
		dropSchema = `ALTER PUBLICATION cdc_outbox DROP TABLES IN SCHEMA public`
		addTable   = `ALTER PUBLICATION cdc_outbox ADD TABLE outbox`
		dropTable  = `ALTER PUBLICATION cdc_outbox DROP TABLE outbox`
	)
	t.Parallel()
	start := func(t *testing.T) (*database, *fakeStore, *gate, *instance) {
		d := sharedDatabase(t)
		d.needs15(t)
		s, g := &fakeStore{}, &gate{topic: &topic{}}
		return d, s, g, d.start(s, g).streams()
	}
	noted := func(t *testing.T, s *fakeStore, members int) {
		t.Helper()
		eventually(t, "the memberships in the checkpoint", func() bool {
			return strings.Count(s.stored().Publication, "|") == members-1
		})
	}

	t.Run("while running", func(t *testing.T) {
		t.Parallel()
		d, s, g, i := start(t)
		ids := d.insert(1, 1)
		for range 2 {
			d.exec(addSchema)
			ids = append(ids, d.insert(1, 1)...)
			noted(t, s, 2)
			d.exec(dropTable)
			ids = append(ids, d.insert(1, 1)...)
			noted(t, s, 1)
			d.exec(addTable)
			ids = append(ids, d.insert(1, 1)...)
			noted(t, s, 2)
			d.exec(dropSchema)
			ids = append(ids, d.insert(1, 1)...)
			noted(t, s, 1)
		}
		arrive(t, g.topic, len(ids))
		if i.metrics.reconnected() > 0 {
			t.Error("a session ended over it")
		}
		i.stop()
		wantOnce(t, g.topic, ids)
	})
	t.Run("while stopped", func(t *testing.T) {
		t.Parallel()
		d, s, g, i := start(t)
		var ids []string
		for _, change := range []string{addSchema, dropTable, addTable, dropSchema} {
			ids = append(ids, d.insert(1, 1)...)
			arrive(t, g.topic, len(ids))
			i.stop()
			d.exec(change)
			ids = append(ids, d.insert(1, 1)...)
			i = d.start(s, g).streams()
		}
		arrive(t, g.topic, len(ids))
		i.stop()
		wantOnce(t, g.topic, ids)
	})
	// Whether one came before the other went cannot be told, if nobody looked.
	t.Run("one for the other while stopped", func(t *testing.T) {
		t.Parallel()
		d, s, g, i := start(t)
		i.stop()
		d.exec(addSchema)
		d.exec(dropTable)
		d.start(s, g).wantEnd(failure.Loss, `taken out of it and added again`)
	})
}
