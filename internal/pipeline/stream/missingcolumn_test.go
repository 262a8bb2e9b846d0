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

// A name that the table does not have now is an error of the configuration, also
// where bad events stop nobody.
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
