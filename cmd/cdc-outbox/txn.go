package main

import (
	"context"
	"flag"

	"github.com/cdc-outbox/cdc-outbox/internal/admin"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
)

func txnListVerb() verb {
	return verb{
		name:    "txn list",
		summary: "lists the Kafka transactions that are open and hold consumers back",
		detail:  "It is for sink.kafka.delivery: exactly_once, and changes nothing. It shows those of other\nprograms, too, as far as the brokers allow.",
		example: "cdc-outbox txn list -c cdc-outbox.yaml",
		prepare: func(flags *flag.FlagSet) action {
			return forEach(flags, func(ctx context.Context, cfg *config.Config) (report, error) {
				return admin.OpenTransactions(ctx, cfg)
			})
		},
	}
}

func txnAbortVerb() verb {
	return verb{
		name:    "txn abort",
		summary: "aborts the connector's own open Kafka transaction, after --yes",
		detail: "For a connector that died and will not be started soon: brokers would abort it after ten\n" +
			"seconds by themselves. A connector that runs drops what it has in flight and begins anew;\nnothing is lost.",
		example: "cdc-outbox txn abort -c cdc-outbox.yaml --yes",
		prepare: func(flags *flag.FlagSet) action {
			yes := flags.Bool("yes", false, "do it; otherwise only say what would be aborted")
			return forEach(flags, func(ctx context.Context, cfg *config.Config) (report, error) {
				return admin.AbortTransaction(ctx, cfg, *yes)
			})
		},
	}
}
