package admin

import (
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// commits streams the first n transactions with a row from the slot, confirming
// nothing.
func (f *fixture) commits(n int) (found []checkpoint.Landmark) {
	f.t.Helper()
	f.stream(func(row *pg.Row) bool {
		found = append(found, checkpoint.LandmarkOf(row))
		return len(found) < n
	})
	return found
}

func TestSkipTransaction(t *testing.T) {
	f := sound(t)
	before := f.save()
	f.insert("order", "1", "{}")
	f.exec(`INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', '', 'Placed', '{}'), ('order', '2', 'Placed', '{}')`)
	f.insert("order", "3", "{}")
	at := f.commits(2)[1]

	planned, err := SkipTransaction(f.ctx(), f.Config, at.Commit, false)
	wantClass(t, err, failure.Config, "nothing was changed")
	if cp := f.stored(); !cp.Skip.IsZero() || cp.Epoch != before.Epoch {
		t.Errorf("the plan changed the checkpoint to %+v", cp)
	}
	if planned.Done || planned.Total != 2 || planned.Events[0].Reason != transform.ReasonNullKey || planned.Events[1].Reason != "" {
		t.Errorf("planned %+v", planned)
	}

	done := must.Get(SkipTransaction(f.ctx(), f.Config, at.Commit, true))(t)
	if cp := f.stored(); !done.Done || !cp.Skip.Same(at) || cp.LSN != before.LSN || cp.Epoch <= before.Epoch {
		t.Errorf("done %+v, checkpoint %+v", done, cp)
	}
}

func TestSkipTransactionRefuses(t *testing.T) {
	f := sound(t)
	f.save()
	f.insert("order", "1", "{}")
	at := f.commits(1)[0].Commit
	server := must.Get(catalog.ReadServer(f.ctx(), f.conn))(t)
	for _, tt := range []struct {
		name string
		at   pg.LSN
		want string
	}{
		{"no transaction's", at + 1, "no transaction with events commits at"},
		{"before the checkpoint", 1, "is passed already"},
		{"beyond the log", server.FlushLSN + 1<<30, "beyond the server's log"},
	} {
		_, err := SkipTransaction(f.ctx(), f.Config, tt.at, true)
		wantClass(t, err, failure.Config, tt.want)
	}

	poll := *f.Config
	poll.Source.Mode = config.ModePoll
	_, err := SkipTransaction(f.ctx(), &poll, at, true)
	wantClass(t, err, failure.Config, "needs a replication slot")
	none := *f.Config
	none.Checkpoint.Store = store.StoreNone
	_, err = SkipTransaction(f.ctx(), &none, at, true)
	wantClass(t, err, failure.Config, "no checkpoint to note")
	_, err = ParseSkip("yesterday")
	wantClass(t, err, failure.Config, "is no position")
}

// In message mode, also a message of no transaction, its own end.
func TestSkipMessage(t *testing.T) {
	f := empty(t)
	f.Source.Mode, f.Source.Tables = config.ModeMessage, nil
	f.setup()
	f.save()
	for _, transactional := range []string{"true", "false"} {
		var at pg.LSN
		f.exec(`SELECT pg_logical_emit_message(` + transactional + `, 'outbox', 'no envelope')`)
		f.streamChanges(func(msg *wal.Message) bool {
			at = msg.Row.Position.CommitLSN
			return msg.Kind != wal.LogicalMessage || msg.NonTransactional != (transactional == "false")
		})
		done := must.Get(SkipTransaction(f.ctx(), f.Config, at, true))(t)
		if cp := f.stored(); done.Total != 1 || done.Events[0].Reason != transform.ReasonUnreadableContents || cp.Skip.Commit != at {
			t.Errorf("done %+v, checkpoint %+v", done, cp)
		}
	}
}

// Failure mode 144. A row too large to be sent is named as such, and nothing is
// promised of a row that brokers may refuse.
func TestSkipTransactionWithARowThatIsTooLarge(t *testing.T) {
	f := empty(t)
	f.withKafka()
	f.setup()
	f.save()
	f.exec(`INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES
		('order', '1', 'Placed', jsonb_build_object('x', repeat('x', 2000000))), ('order', '2', 'Placed', '{}')`)
	at := f.commits(1)[0].Commit
	planned, err := SkipTransaction(f.ctx(), f.Config, at, false)
	wantClass(t, err, failure.Config, "nothing was changed")
	if planned.Total != 2 || planned.Events[0].Reason != transform.ReasonRecordTooLarge || planned.Events[1].Reason != "" {
		t.Errorf("planned %+v", planned)
	}
	if shown := text(t, planned); strings.Contains(shown, "could be published") {
		t.Errorf("promises more than is known: %s", shown)
	}
}

// A connector may take the slot before the verb has ended.
func TestVerbDoesNotWaitForAnothersSlot(t *testing.T) {
	f := sound(t)
	f.save()
	d := must.Get(openIdle(f.ctx(), f.Config))(t)
	defer d.close()
	f.hold()
	wantClass(t, d.released(f.ctx()), failure.Config, "in use by pid")
}
