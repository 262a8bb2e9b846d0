package main

import (
	"flag"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/admin"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

func snapshotVerb() verb {
	return verb{
		Name:    "snapshot",
		Summary: "publishes the rows of the outbox that fulfil a condition once more, marked, after --publish",
		Detail: "It is a replay of the rows that fulfil --where, SQL with the rights of source.url, at any\n" +
			"time beside a connector: rows of one snapshot, once the slot has confirmed all before it, in\n" +
			"order, with the header cdc-replay. A repetition under the same --name goes on where the last\n" +
			"one ended. Without --publish it publishes nothing.",
		Example: "cdc-outbox snapshot -c cdc-outbox.yaml --where \"aggregatetype = 'order' AND payload->>'state' = 'open'\"\n" +
			"cdc-outbox snapshot -c cdc-outbox.yaml --table public.outbox --where true --to copies --rate 1000 --publish",
		Prepare: func(flags *flag.FlagSet) action {
			o := declareSnapshot(flags)
			return reported(o.adminFlags, o.replay, admin.Replay)
		},
	}
}

// snapshotFlags are the flags of snapshot.
type snapshotFlags struct {
	*auditFlags
	*onceMoreFlags
	where, name *string
	tables      texts
}

func declareSnapshot(flags *flag.FlagSet) *snapshotFlags {
	o := &snapshotFlags{
		auditFlags:    declareAudit(flags, "only rows that are routed to this `TOPIC`; repeatable"),
		onceMoreFlags: declareOnceMore(flags),
		where:         flags.String("where", "", "only rows that fulfil this `CONDITION`, in SQL; true means all"),
		name:          flags.String("name", "", "the `NAME`, the value of cdc-replay; the default is snapshot and the time"),
	}
	flags.Var(&o.tables, "table", "only rows of this `TABLE`, of those in source.tables; repeatable")
	return o
}

// replay are the flags' for a replay of the rows.
func (o *snapshotFlags) replay(p *program) (opts admin.ReplayOptions, err error) {
	if *o.where == "" {
		return opts, failure.Configf("for all rows: --where true", "snapshot needs --where")
	}
	opts = o.named(*o.name)
	if opts.Name == "" {
		opts.Name = "snapshot " + time.Now().UTC().Format(time.RFC3339)
	}
	if opts.AuditOptions, err = o.options(p); err != nil {
		return opts, err
	}
	opts.Where = *o.where
	for _, name := range o.tables {
		t, err := pg.ParseTable(name)
		if err != nil {
			return opts, failure.Configf("write it as in source.tables", "--table %q: %w", name, err)
		}
		opts.Tables = append(opts.Tables, t)
	}
	return opts, nil
}
