package main

import (
	"context"
	"flag"
	"math"

	"github.com/cdc-outbox/cdc-outbox/internal/admin"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
)

func txnListVerb() verb {
	return verb{
		Name:    "txn list",
		Summary: "lists the Kafka transactions that are open and hold consumers back",
		Detail:  "It is for sink.kafka.delivery: exactly_once, and changes nothing. It shows those of other\nprograms, too, as far as the brokers allow.",
		Example: "cdc-outbox txn list -c cdc-outbox.yaml",
		Prepare: func(flags *flag.FlagSet) action {
			return forEach(flags, func(ctx context.Context, cfg *config.Config) (report, error) {
				return transactions(admin.OpenTransactions(ctx, cfg))
			})
		},
	}
}

func txnAbortVerb() verb {
	return verb{
		Name:    "txn abort",
		Summary: "aborts an open Kafka transaction, after --yes: the connector's own, or one that hangs",
		Detail: "Its own: for a connector that died and will not be started soon. Brokers abort that by\n" +
			"themselves, ten to twenty seconds after it began. A connector that runs drops what it has\n" +
			"in flight and begins anew; nothing is lost.\n\n" +
			"One that hangs, of which no coordinator knows: with --topic, --partition and\n" +
			"--start-offset, as txn list shows them. It needs the rights to ClusterAction, to Read the\n" +
			"topic, and to Describe __transaction_state.",
		Example: "cdc-outbox txn abort -c cdc-outbox.yaml --yes\n" +
			"cdc-outbox txn abort -c cdc-outbox.yaml --topic outbox.event.order --partition 0 --start-offset 4711 --yes",
		Prepare: prepareAbort,
	}
}

func prepareAbort(flags *flag.FlagSet) action {
	o := declareAdmin(flags)
	yes := flags.Bool("yes", false, "do it; otherwise only say what would be aborted")
	topic := flags.String("topic", "", "a hanging one, in this `TOPIC`")
	partition := flags.Int("partition", -1, "with --topic: the `NUMBER` of the partition")
	offset := flags.Int64("start-offset", -1, "with --topic: the `OFFSET` of its first record there")
	return func(ctx context.Context, p *program) error {
		hanging := *topic != "" || *partition != -1 || *offset != -1
		switch {
		case !hanging:
			return o.each(ctx, p, func(ctx context.Context, cfg *config.Config) (report, error) {
				return transactions(admin.AbortTransaction(ctx, cfg, *yes))
			})
		case *topic == "" || *partition < 0 || *partition > math.MaxInt32 || *offset < 0:
			return failure.Configf("run cdc-outbox txn abort --help", "txn abort needs all of --topic, --partition and --start-offset for a hanging transaction, as txn list shows them")
		}
		cfg, err := o.loadOne(p) // a hanging transaction is the cluster's, not each pipeline's
		if err != nil {
			return err
		}
		aborted, err := transactions(admin.AbortHanging(ctx, cfg, admin.Start{Topic: *topic, Partition: int32(*partition), Offset: *offset}, *yes))
		if aborted != nil {
			err = failure.Join(err, p.show(aborted, *o.asJSON))
		}
		return err
	}
}

// transactions is the report of those found. Beside an error, "none" would say
// more than anybody knows.
func transactions(found admin.Transactions, err error) (report, error) {
	if err != nil && len(found) == 0 {
		return nil, err
	}
	return found, err
}
