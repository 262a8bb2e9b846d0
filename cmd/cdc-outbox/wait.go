package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/admin"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

func waitVerb() verb {
	return verb{
		Name:    "wait",
		Summary: "returns when all that was committed before is in Kafka",
		Detail: "In Kafka means acknowledged by the brokers, dead letters included. Open transactions are\n" +
			"not waited for. While nobody reads the slot, it waits for a connector to do so. Exit code\n" +
			"1 after the timeout; 3 if the slot is gone, lost or made anew, or another server answers.",
		Example: "cdc-outbox wait -c cdc-outbox.yaml\n" +
			"cdc-outbox wait -c cdc-outbox.yaml --lsn 0/16B3748 --timeout 10s",
		Prepare: prepareWait,
	}
}

func prepareWait(flags *flag.FlagSet) action {
	o := declareAdmin(flags)
	lsn := flags.String("lsn", "", "wait for the log up to `LSN`, of pg_current_wal_insert_lsn()")
	now := flags.Bool("now", false, "wait for all that was committed before the call (the default)")
	timeout := flags.Duration("timeout", time.Minute, "give up after this `DURATION`; one minute without it")
	return func(ctx context.Context, p *program) error {
		if *lsn != "" && *now {
			return failure.Configf("leave out one of the two", "wait takes either --lsn or --now")
		}
		if *timeout <= 0 {
			return failure.Configf("for example --timeout 90s", "wait --timeout %s leaves no time", *timeout)
		}
		opts := admin.WaitOptions{Timeout: *timeout, Note: func(note string) { fmt.Fprintln(p.stderr, "note: "+note) }}
		if *lsn != "" {
			var err error
			if opts.LSN, err = pg.ParseLSN(*lsn); err != nil || opts.LSN == 0 {
				return failure.Configf("for example --lsn 0/16B3748; SELECT pg_current_wal_insert_lsn() tells the present one", "wait --lsn: no position in a log")
			}
			if _, err := o.loadOne(p); err != nil { // the position is of a single server
				return err
			}
		}
		return o.each(ctx, p, func(ctx context.Context, cfg *config.Config) (report, error) {
			r, err := admin.Wait(ctx, cfg, opts)
			if r == nil {
				return nil, err
			}
			return r, err
		})
	}
}
