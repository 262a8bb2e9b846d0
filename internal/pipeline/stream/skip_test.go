package stream

import (
	"context"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// passOver notes a transaction to pass over in the store, as setup --skip-to does.
func (d *database) passOver(s *fakeStore, tx checkpoint.Landmark) {
	d.t.Helper()
	cp := s.stored()
	cp.Skip = tx
	cp.Epoch++
	must.OK(d.t, s.Save(context.Background(), cp))
}

// A transaction with a bad event is passed over as a whole, once, and no other: not even
// another log's at the same position.
func TestTransactionIsPassedOver(t *testing.T) {
	d := outbox(t)
	first := d.run().streams()
	d.exec(insertSQL("1"))
	d.exec("BEGIN;" + insertSQL("2") + "; INSERT INTO outbox VALUES ('3', 'order', '', 'Placed', '{}'); " + insertSQL("4") + "; COMMIT")
	d.exec(insertSQL("5"))
	first.wantEnd(failure.Config, "bad event 3 of public.outbox at .*/1: null_key")
	if got := d.topic.ids(); !slices.Equal(got, []string{"1", "2"}) {
		t.Fatalf("before the bad event: %v", got)
	}
	if cp := d.store.stored(); cp.Landmark.XID == 0 {
		t.Errorf("the first event was acknowledged, and the checkpoint is at %s without it", cp.LSN)
	}

	at := d.passed(d.store, d.topic.all()[1].position.CommitLSN)
	other := at
	other.XID++
	d.passOver(d.store, other)
	d.run().wantEnd(failure.Config, "bad event 3")

	d.passOver(d.store, at)
	i := d.run().streams()
	d.exec(insertSQL("6"))
	eventually(t, "event 6", func() bool { return slices.Contains(d.topic.ids(), "6") })
	i.stop()
	if got := d.topic.ids()[len(d.topic.ids())-2:]; !slices.Equal(got, []string{"5", "6"}) {
		t.Errorf("after the transaction: %v", d.topic.ids())
	}
	if want := []transform.Reason{transform.ReasonPassedOver, transform.ReasonPassedOver, transform.ReasonPassedOver}; !slices.Equal(i.metrics.skipped, want) {
		t.Errorf("skipped %v, want %v", i.metrics.skipped, want)
	}
	if n := i.logs.FilterMessageSnippet("passed over with its transaction").Len(); n == 0 {
		t.Error("the log does not name what was passed over")
	}
	d.run().streams().stop()
	if cp := d.store.stored(); !cp.Skip.IsZero() {
		t.Errorf("the checkpoint still has %s", cp.Skip)
	}
}

// A message is passed over as a row is, also a non-transactional one.
func TestMessageIsPassedOver(t *testing.T) {
	d := messageDatabase(t)
	d.run().streams().stop()
	d.exec(emit(t, "1", "{}"))
	for _, transactional := range []string{"true", "false"} {
		d.exec(`SELECT pg_logical_emit_message(` + transactional + `, 'outbox', 'no envelope')`)
	}
	d.exec(emit(t, "2", "{}"))
	for range 2 {
		i := d.run()
		err := i.wait()
		at := regexp.MustCompile(`--skip-to ([0-9A-F/]+)`).FindStringSubmatch(failure.RemedyOf(err))
		if at == nil {
			t.Fatalf("Run = %v, remedy %s", err, failure.RemedyOf(err))
		}
		commit := must.Get(pg.ParseLSN(at[1]))(t)
		d.passOver(d.store, d.passed(d.store, commit))
	}
	i := d.run().streams()
	eventually(t, "event 2", func() bool { return slices.Contains(d.topic.ids(), "2") })
	i.stop()
	wantOnce(t, d.topic, []string{"1", "2"})
}

// passed is the landmark of the transaction at commit.
func (d *database) passed(s *fakeStore, commit pg.LSN) (found checkpoint.Landmark) {
	d.t.Helper()
	repl := must.Get(catalog.ConnectReplication(d.t.Context(), d.url))(d.t)
	stream := must.Get(wal.Open(d.t.Context(), repl, wal.Options{
		Slot: d.opts.Slot, Publication: d.opts.Publication, Start: s.stored().LSN, Confirmed: 1,
		StatusInterval: time.Second, LivenessTimeout: patience,
		Messages: len(d.opts.Tables) == 0, MessagesOnly: len(d.opts.Tables) == 0,
	}))(d.t)
	defer func() { _ = stream.Close(d.t.Context()) }()
	for found.Commit != commit {
		msg := must.Get(stream.Next(d.t.Context()))(d.t)
		if msg.Kind == wal.Insert || msg.Kind == wal.LogicalMessage {
			found = checkpoint.LandmarkOf(&msg.Row)
		}
	}
	return found
}

// renamed commits event 2 while the key column has another name, and 1 and 3
// before and after.
func (d *database) renamed() {
	d.t.Helper()
	d.exec(insertSQL("1"))
	d.exec(`ALTER TABLE outbox RENAME aggregateid TO renamed`)
	d.exec(insertSQL("2"))
	d.exec(`ALTER TABLE outbox RENAME renamed TO aggregateid`)
	d.exec(insertSQL("3"))
}

// Failure mode 58: a row of another name can be published under that name.
func TestRowIsPublishedUnderTheNameOfItsTime(t *testing.T) {
	d := outbox(t)
	d.run().streams().stop()
	d.renamed()
	d.run().wantEnd(failure.Config, `bad event 2 of public.outbox at .*: missing_column: .* no column "aggregateid"`)
	d.event.Key = "renamed"
	d.run().wantEnd(failure.Config, `bad event 3 of public.outbox at .*: missing_column: .* no column "renamed"`)
	d.event.Key = ""
	i := d.run().streams()
	arrive(t, d.topic, 3)
	i.stop()
	wantOnce(t, d.topic, []string{"1", "2", "3"})
}

// A name missing in the table now is an error of the configuration, even if bad events do
// not stop the connector.
func TestWrongNameMakesNoDeadLetters(t *testing.T) {
	for _, policy := range []string{transform.BadEventDeadLetter, transform.BadEventSkip} {
		t.Run(policy, func(t *testing.T) {
			d := outbox(t)
			d.opts.OnBadEvent = policy
			d.run().streams().stop()
			d.renamed()
			d.event.Key = "agregateid"
			i := d.run()
			i.wantEnd(failure.Config, `no column "agregateid"`)
			if len(d.gate.dead)+len(i.metrics.skipped) != 0 {
				t.Errorf("dead letters %v, skipped %v", d.gate.dead, i.metrics.skipped)
			}
		})
	}
}
