package stream

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

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
	t.Parallel()
	d := sharedDatabase(t)
	s, g := &fakeStore{}, &gate{topic: &topic{}}
	d.start(s, g).streams().stop()
	d.renamed()
	d.start(s, g).wantEnd(failure.Config, `bad event 2 of public.outbox at .*: missing_column: .* no column "aggregateid"`)
	d.event.Key = "renamed"
	d.start(s, g).wantEnd(failure.Config, `bad event 3 of public.outbox at .*: missing_column: .* no column "renamed"`)
	d.event.Key = ""
	i := d.start(s, g).streams()
	arrive(t, g.topic, 3)
	i.stop()
	wantOnce(t, g.topic, []string{"1", "2", "3"})
}

// A name that the table does not have now is an error of the configuration,
// also where bad events do not stop the connector.
func TestWrongNameMakesNoDeadLetters(t *testing.T) {
	for _, policy := range []string{transform.BadEventDeadLetter, transform.BadEventSkip} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			d := sharedDatabase(t)
			s, g := &fakeStore{}, &gate{topic: &topic{}}
			d.opts.OnBadEvent = policy
			d.start(s, g).streams().stop()
			d.renamed()
			d.event.Key = "agregateid"
			i := d.start(s, g)
			i.wantEnd(failure.Config, `no column "agregateid"`)
			if len(g.dead)+len(i.metrics.skipped) != 0 {
				t.Errorf("dead letters %v, skipped %v", g.dead, i.metrics.skipped)
			}
		})
	}
}
