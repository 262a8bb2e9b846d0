package main

import (
	"context"
	"fmt"
	"slices"
)

// pair is the same events drained from a table and from messages.
type pair struct{ table, message round }

func (p pair) ratio() float64 { return p.table.drained.Seconds() / p.message.drained.Seconds() }

// compare has the connector drain both backlogs by turns, and prints how many
// times as fast messages are. The table's backlog ends where that of the
// messages begins, so each is read alone.
func compare(ctx context.Context, o options, db *database) error {
	var pairs []pair
	for n := range o.rounds {
		p := pair{table: round{rows: o.rows / o.perTx * o.perTx}, message: round{rows: o.rows / o.perTx * o.perTx}}
		steps := []func() error{
			func() error { return connector(ctx, o, db, db.backlogs[0], &p.table) },
			func() error { return connector(ctx, o, db, db.backlogs[1], &p.message) },
		}
		if n%2 == 1 {
			slices.Reverse(steps)
		}
		for _, step := range steps {
			if err := step(); err != nil {
				return fmt.Errorf("round %d: %w", n+1, err)
			}
		}
		fmt.Printf("round %d: table %6.0f events/s (%.1f µs CPU each), message %6.0f events/s (%.1f µs CPU each), ratio %.2f\n", n+1,
			p.table.rate(), p.table.cpuMicros(), p.message.rate(), p.message.cpuMicros(), p.ratio())
		pairs = append(pairs, p)
	}
	fmt.Printf("median of %d: messages drain %.2f times as fast as a table, CPU %.1f µs/event instead of %.1f\n", len(pairs),
		median(pairs, pair.ratio),
		median(pairs, func(p pair) float64 { return p.message.cpuMicros() }),
		median(pairs, func(p pair) float64 { return p.table.cpuMicros() }))
	return nil
}
