package stream

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/role"
)

// unreadable is a checkpoint store whose loads fail on demand.
type unreadable struct {
	checkpoint.Store
	down atomic.Bool
}

func (u *unreadable) Load(ctx context.Context) (checkpoint.Checkpoint, bool, error) {
	if u.down.Load() {
		return checkpoint.Checkpoint{}, false, errors.New("the store is away")
	}
	return u.Store.Load(ctx)
}

// A spare that could not read its checkpoint could not take over: it is not
// ready, says why, and is ready again with the store.
func TestSpareWithoutItsStoreIsNotReady(t *testing.T) {
	d := outbox(t)
	d.limits.spareLook, d.limits.spareSilence = 20*time.Millisecond, 100*time.Millisecond
	d.run().streams()
	away := &unreadable{Store: d.store}
	spare := d.start(away, &gate{topic: d.topic})
	eventually(t, "a spare", func() bool { return spare.role() == role.Standby && spare.ready() })
	away.down.Store(true)
	eventually(t, "the spare not to be ready", func() bool { return !spare.ready() })
	if _, reasons := spare.health.Ready(); !slices.ContainsFunc(reasons, func(r string) bool { return strings.Contains(r, "the store is away") }) {
		t.Errorf("reasons %q", reasons)
	}
	if n := spare.logs.FilterMessage("a spare cannot read its checkpoint and could not take over").Len(); n == 0 {
		t.Error("nothing is logged")
	}
	away.down.Store(false)
	eventually(t, "the spare to be ready again", spare.ready)
	if got := spare.role(); got != role.Standby {
		t.Errorf("role %s", got)
	}
}
