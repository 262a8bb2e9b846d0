package stream

import (
	"runtime"
	"strconv"
	"testing"
)

// heap is the memory in use after everything that can be freed was.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Failure mode 55: while the sink takes nothing, memory is bounded by what is
// kept, which may be much more than what is published: a row's other columns,
// and what lies between rows in the stream. The tests are not parallel, as they
// look at the process's heap.
func TestMemoryIsBoundedByWhatIsKept(t *testing.T) {
	const large = "repeat('0123456789abcdef', 65536)" // 1 MiB
	for name, c := range map[string]struct {
		prepare []string
		fill    string
		change  func(*Options)
	}{
		"a wide column that nobody asked for": {
			prepare: []string{"ALTER TABLE outbox ADD notes text"},
			fill:    "INSERT INTO outbox SELECT n::text, 'order', 'o', 'Placed', '{}', " + large + " FROM generate_series(1, 300) n",
		},
		"small rows between large ones of another table": {
			prepare: []string{"CREATE TABLE audit (v text)", "CREATE PUBLICATION cdc_outbox FOR TABLE outbox, audit"},
			fill: `DO $$ BEGIN FOR n IN 1..2500 LOOP
				INSERT INTO audit SELECT left(` + large + `, 120000);
				INSERT INTO outbox VALUES (n::text, 'order', 'o', 'Placed', '{}');
			END LOOP; END $$`,
		},
		"a wide column in the first snapshot": {
			prepare: []string{"ALTER TABLE outbox ADD notes text",
				"INSERT INTO outbox SELECT n::text, 'order', 'o', 'Placed', '{}', " + large + " FROM generate_series(1, 300) n"},
			change: func(o *Options) { o.Snapshot = true },
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := sharedDatabase(t)
			for _, sql := range c.prepare {
				d.exec(sql)
			}
			if c.change != nil {
				c.change(&d.opts)
			}
			const limit = 8 << 20
			d.opts.MaxBufferedBytes = limit
			g := &gate{topic: &topic{}}
			g.hold()
			before := heap()
			i := d.start(&fakeStore{}, g)
			if c.fill != "" {
				i.streams()
				d.exec(c.fill)
			}
			total, err := strconv.Atoi(d.text("SELECT count(*)::text FROM outbox"))
			if err != nil {
				t.Fatal(err)
			}
			inFlight := func() int { return i.status().InFlightEvents }
			eventually(t, "a full buffer, or all events in it", func() bool {
				return i.metrics.inFlight() > limit-5<<19 || inFlight() == total
			})
			if inFlight() == total {
				t.Errorf("all %d events are in flight, counted as %d bytes", total, i.metrics.inFlight())
			}
			if grown := heap() - before; grown > 64<<20 {
				t.Errorf("the heap grew by %d MiB under a limit of %d", grown>>20, limit>>20)
			} else {
				t.Logf("the heap grew by %d MiB with %d of %d events in flight", grown>>20, inFlight(), total)
			}
			g.open()
			arrive(t, g.topic, total)
			i.stop()
		})
	}
}
