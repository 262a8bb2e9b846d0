package stream

import (
	"fmt"
	"testing"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// An application that still marks rows as published, and one that writes events
// without keys, fill metrics and not the log: the first is told at once, the
// others are summed up, at the latest by the stop.
func TestFloodsAreSummedUp(t *testing.T) {
	t.Parallel()
	const n = 500
	d := sharedDatabase(t)
	d.opts.OnBadEvent = transform.BadEventSkip
	out := &gate{topic: &topic{}}
	i := d.start(&fakeStore{}, out).streams()
	d.insert(n, 100)
	d.exec("UPDATE outbox SET payload = '{}'")
	d.exec(fmt.Sprintf("INSERT INTO outbox SELECT 'bad-' || n, 'order', '', 'Placed', '{}' FROM generate_series(1, %d) n", n))
	eventually(t, "all to be counted", func() (all bool) {
		i.metrics.locked(func() { all = len(i.metrics.ignored) == n && len(i.metrics.skipped) == n })
		return all
	})
	i.stop()

	for message, of := range map[string]string{
		"update of an outbox row ignored":            "public.outbox",
		"event skipped, as errors.on_bad_event says": string(transform.ReasonNullKey),
	} {
		total, sums := 0, 0
		logged := i.logs.FilterMessage(message).FilterLevelExact(zap.WarnLevel).All()
		for _, entry := range logged {
			fields := entry.ContextMap()
			more, isSum := fields["more"].(int64)
			if !isSum {
				total++
				continue
			}
			sums++
			total += int(more)
			first, last := fields["first"].(map[string]any), fields["last"].(map[string]any)
			if fields["of"] != of || first["lsn"] == "" || last["lsn"] == "" {
				t.Errorf("%s: summary %v", message, fields)
			}
		}
		if total != n || sums == 0 || len(logged) > n/10 {
			t.Errorf("%s: %d in %d lines, of %d", message, total, len(logged), n)
		}
	}
}
