package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/admin"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
)

func upgradePrepareVerb() verb {
	return verb{
		Name:    "upgrade prepare",
		Summary: "before a major upgrade of PostgreSQL: makes sure that all is in Kafka, and marks that",
		Detail: "Stop the writers first. Beside a running connector it waits until all is published, and asks\n" +
			"for the connector's stop; then, with --yes, it writes a marker by which `upgrade finish` knows\n" +
			"the new server. It can be repeated. Exit code 1 if events are not published yet.",
		Example: "cdc-outbox upgrade prepare -c cdc-outbox.yaml --yes",
		Prepare: func(flags *flag.FlagSet) action {
			o := declareAdmin(flags)
			yes := flags.Bool("yes", false, "write the marker; otherwise only look")
			timeout := flags.Duration("timeout", time.Minute, "give up after this `DURATION`; one minute without it")
			return func(ctx context.Context, p *program) error {
				if *timeout <= 0 {
					return failure.Configf("for example --timeout 90s", "upgrade prepare --timeout %s leaves no time", *timeout)
				}
				return o.each(ctx, p, func(ctx context.Context, cfg *config.Config) (report, error) {
					r, err := admin.PrepareUpgrade(ctx, cfg, admin.PrepareOptions{
						Yes: *yes, Timeout: *timeout, Note: func(note string) { fmt.Fprintln(p.stderr, "note: "+note) },
					})
					if r == nil {
						return nil, err
					}
					return r, err
				})
			}
		},
	}
}

func upgradeFinishVerb() verb {
	return verb{
		Name:    "upgrade finish",
		Summary: "after a major upgrade of PostgreSQL: goes on with the kept slot, or with a new one and what is missing",
		Detail: "With the URL of the new server. The slot that pg_upgrade kept (from PostgreSQL 17 on) is\n" +
			"adopted. Otherwise a slot is made, and what the tables have as of its first position is\n" +
			"compared with Kafka by event id, and published if it is missing. Without --yes it only says\n" +
			"so. It can be ended and repeated at any time. Exit code 3 if nothing proves what is published.",
		Example: "cdc-outbox upgrade finish -c cdc-outbox.yaml --yes",
		Prepare: func(flags *flag.FlagSet) action {
			o := declareAudit(flags, formerTopic)
			yes := flags.Bool("yes", false, "do it; otherwise only say what would be done")
			options := func(p *program) (admin.AuditOptions, error) {
				if len(o.ids) > 0 || o.xids.XIDs != (admin.XIDs{}) || !o.until.IsZero() {
					return admin.AuditOptions{}, failure.Configf("leave out --id, --xid and --until", "upgrade finish compares all rows up to the new slot: any may be missing")
				}
				return o.options(p)
			}
			return reported(o.adminFlags, options, func(ctx context.Context, cfg *config.Config, opts admin.AuditOptions) (*admin.FinishReport, error) {
				return admin.FinishUpgrade(ctx, cfg, opts, *yes)
			})
		},
	}
}
