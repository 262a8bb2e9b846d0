package catalog

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// An instance waiting for a slot shows to questions about the same slot in the
// same database, as long as its connection lasts.
func TestStandbysAreThoseOfTheSlot(t *testing.T) {
	server := pgtest.Shared(t)
	url, other := server.NewDatabase(t), server.NewDatabase(t)
	asker, waits := connect(t, url), connect(t, url)
	must.OK(t, Reading{Slot: "a"}.StandBy(t.Context(), waits))
	must.OK(t, Reading{Slot: "a"}.StandBy(t.Context(), waits)) // at each new wait
	must.OK(t, Reading{Slot: "b"}.StandBy(t.Context(), connect(t, url)))
	must.OK(t, Reading{Slot: "a"}.StandBy(t.Context(), connect(t, other)))
	got := must.Get(ReadStandbys(t.Context(), asker, "a"))(t)
	if len(got) != 1 || uint32(got[0].PID) != waits.PgConn().PID() || got[0].Application == "" {
		t.Errorf("standbys %+v, want pid %d", got, waits.PgConn().PID())
	}
	must.OK(t, waits.Close(t.Context()))
	pgtest.Exec(t, url, "SELECT 1")
	for len(got) > 0 && t.Context().Err() == nil { // the server ends a session after the client
		got = must.Get(ReadStandbys(t.Context(), asker, "a"))(t)
	}
}
