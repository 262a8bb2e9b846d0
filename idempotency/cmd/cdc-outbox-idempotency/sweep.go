package main

import (
	"context"
	"flag"
	"fmt"
	"io"

	"github.com/cdc-outbox/cdc-outbox/idempotency/cmd/cdc-outbox-idempotency/internal/keystore"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

func sweepVerb() verb {
	return verb{
		Name:    "sweep",
		Summary: "removes from PostgreSQL what is past its retention; Redis and DynamoDB do that by themselves",
		Detail: storeDetail + "\n\nIt waits for nobody, and may run beside consumers. Hourly, by cron, is enough for most;\n" +
			"consumers do it by themselves where Options.SweepEvery says so.",
		Example: name + " sweep --store postgres://app@localhost/app",
		Prepare: func(flags *flag.FlagSet) action {
			url := flags.String("store", "", "the `URL` of the store; also "+storeEnv)
			table := flags.String("name", "", "the `TABLE`, where it is not the default")
			batch := flags.Int("batch", 0, "how many `ROWS` to delete in one statement, 1000 by default")
			asJSON := flags.Bool("json", false, "print JSON")
			return func(ctx context.Context, p *program) error {
				if *batch < 0 {
					return failure.Configf("write for example --batch 1000", "--batch %d is negative", *batch)
				}
				n, err := sweep(ctx, p, *url, *table, *batch)
				if err != nil {
					return err
				}
				return p.show(sweepReport{Swept: n}, *asJSON)
			}
		},
	}
}

func sweep(ctx context.Context, p *program, url, table string, batch int) (int, error) {
	store, err := openStore(ctx, p, url, table)
	if err != nil {
		return 0, err
	}
	defer store.Close()
	sweeper, ok := store.(keystore.Sweeper)
	if !ok {
		return 0, failure.Configf("name the store in PostgreSQL, if there is one", "this store removes by itself what it forgets")
	}
	n, err := sweeper.Sweep(ctx, batch)
	if err != nil {
		return n, fmt.Errorf("%d messages were removed before this: %w", n, explainKey(err))
	}
	return n, nil
}

// sweepReport shows how much was removed.
type sweepReport struct {
	Swept int `json:"swept"`
}

// WriteText implements report.
func (r sweepReport) WriteText(w io.Writer) error {
	_, err := fmt.Fprintf(w, "removed %d messages\n", r.Swept)
	return err
}
