package stream

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// waiting is a transactor with events waiting for topics until the door opens.
type waiting struct {
	transactor
	door
}

func (w *waiting) Await(ctx context.Context, _ []sink.Entry, _ func() error) error {
	return w.pass(ctx)
}

// A transaction looks as if brokers had committed only a part, so its events are read
// again, to leave out events seen by consumers. Then a former holder, with better
// knowledge, confirms the slot behind the transaction. Events read already must not be
// written.
func TestConfirmationOfWhatIsInDoubtComesLate(t *testing.T) {
	d := sharedDatabase(t)
	d.run().streams().stop()
	saved := d.store.stored()
	d.insert(2, 2)
	later := saved
	later.LSN = d.lsn("SELECT pg_current_wal_flush_lsn()::text")
	later.Landmark = checkpoint.Landmark{Commit: later.LSN}
	saved.Doubtful = []checkpoint.Doubtful{{Saved: later, Committed: true, Written: checkpoint.Written{"events": nil}}}
	d.store.cp = &saved

	p, behind := behindProxy(t, d)
	x := &waiting{}
	x.hold()
	i := behind.startWith(Parts{Store: d.store, Transactions: &Transactions{Sink: x, Marker: x}})
	x.reached(t)
	p.Refuse(true)
	p.Cut()
	eventually(t, "the slot to be free", func() bool { return d.walsender() == 0 })
	d.exec(fmt.Sprintf("SELECT pg_replication_slot_advance('%s', '%s')", d.opts.Slot, later.LSN))
	p.Refuse(false)
	if err := i.wait(); !errors.Is(err, ErrTakenOver) {
		t.Errorf("Run = %v, want it to start over", err)
	}
	if len(x.commits) > 1 { // the first is the session's checkpoint
		t.Errorf("written: %q", x.commits)
	}
}

// committing is a transactor with transactions waiting for the door.
type committing struct {
	transactor
	door
	cut bool // one was, while it waited
}

func (c *committing) Transact(ctx context.Context, entries []sink.Entry, m *kgo.Record) ([]sink.Refusal, error) {
	if err := c.pass(ctx); err != nil {
		c.cut = true
		return nil, err
	}
	return c.transactor.Transact(ctx, entries, m)
}

// A session waits for the Kafka transaction under way. PostgreSQL has answered by then:
// the last error is no reason for the wait.
func TestWaitForATransactionIsNotBlamedOnPostgreSQL(t *testing.T) {
	d := sharedDatabase(t)
	c := &committing{}
	i := d.startWith(Parts{Store: d.store, Transactions: &Transactions{Sink: c, Marker: c}}).streams()
	c.hold()
	d.insert(1, 1)
	c.reached(t)
	d.exec(fmt.Sprintf("SELECT pg_terminate_backend(%d)", d.walsender()))
	eventually(t, "the end of the session to be seen", func() bool { return i.status().PostgresError != "" })
	eventually(t, "the wait to be blamed on nobody but Kafka", func() bool {
		st := i.status()
		return st.Role == session.Starting && st.PostgresError == "" && st.CheckpointError == ""
	})
	c.open()
	i.streams().stop()
}
