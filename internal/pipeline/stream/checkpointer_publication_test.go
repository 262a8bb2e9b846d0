package stream

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
)

// A changed publication is saved once, although the position stays.
func TestKeeperSavesAChangedPublication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t)
		k.follow("7:t=1/2|schema/3")
		pass(interval - 1)
		k.want(t, 1000)
		pass(1)
		k.want(t, 1000, 1000)
		k.follow("7:t=1/2|schema/3")
		pass(time.Minute)
		k.want(t, 1000, 1000)
		if got := k.store.stored(); got.Publication != "7:t=1/2|schema/3" || got.Slot != "s" {
			t.Errorf("saved %+v", got)
		}
		k.follow("7:t=schema/3")
		if err := k.stop(); err != nil {
			t.Error(err)
		}
		k.finish(t.Context())
		if got := k.store.stored().Publication; got != "7:t=schema/3" {
			t.Errorf("the last checkpoint says %q", got)
		}
	})
}

// A session begins with the publication that it saw itself, not with that of an
// earlier session.
func TestKeeperBeginsWithTheSessionsPublication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t)
		k.follow("old")
		pass(interval)
		k.follow("new")
		if err := k.begin(t.Context(), checkpoint.Checkpoint{LSN: 1000, Epoch: 8, Publication: "new"}); err != nil {
			t.Fatal(err)
		}
		if got := k.store.stored(); got.Publication != "new" || got.Epoch != 8 {
			t.Errorf("saved %+v", got)
		}
		_ = k.stop()
	})
}
