// Command poll measures the database's cost of polling.
//
//	go run ./bench/poll [-rows N] [-new N] [-rounds N] …
//
// The first part shows that a poll's cost follows the new rows and not the
// table: polls take turns between a table of -rows rows and a table of -small rows, in
// a single server and run. Printed are for both the time until -new new rows are
// published and marked, the blocks of table and indexes touched meanwhile, and the
// same of a poll without new rows. Deliveries take no time there.
//
// The second part has a writer commit the same load while nobody reads, while
// the connector streams, and while it polls. Printed are the processor time of all of
// PostgreSQL's processes, the log written, and the connector's own time, each per event
// and without the writer's own cost. A VACUUM at the end is included: polling leaves
// dead versions. The connector writes to
// standard output, where the events are dropped, so no broker takes part.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

type options struct {
	rows, small, fresh, payload int
	rounds                      int
	rate, perTx                 int
	load                        time.Duration
	binary                      string
}

func main() { rig.Main("poll", start) }

func start(ctx context.Context) error {
	var o options
	flag.IntVar(&o.rows, "rows", 10_000_000, "rows in the large table, all published")
	flag.IntVar(&o.small, "small", 10_000, "rows in the small one")
	flag.IntVar(&o.fresh, "new", 1000, "rows that are new")
	flag.IntVar(&o.payload, "payload", 500, "bytes of payload; the row is about 120 more")
	flag.IntVar(&o.rounds, "rounds", 7, "paired rounds")
	flag.IntVar(&o.rate, "rate", 2000, "events per second of the load; 0 leaves the second part out")
	flag.IntVar(&o.perTx, "per-tx", 2, "events per transaction of the load")
	flag.DurationVar(&o.load, "load", 20*time.Second, "how long each load lasts")
	flag.StringVar(&o.binary, "binary", "", "the connector; built from this tree when empty")
	flag.Parse()
	return run(ctx, o)
}

func run(ctx context.Context, o options) error {
	s, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := compareSizes(ctx, s, o); err != nil {
		return fmt.Errorf("cost of a poll: %w", err)
	}
	if o.rate == 0 {
		return nil
	}
	connector, err := rig.NewConnector(ctx, o.binary)
	if err != nil {
		return err
	}
	defer connector.Remove()
	if err := compareModes(ctx, s, o, connector); err != nil {
		return fmt.Errorf("load on the server: %w", err)
	}
	return nil
}
