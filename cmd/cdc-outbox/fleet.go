package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/admin"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

func fleetStatusVerb() verb {
	return verb{
		Name:    "fleet status",
		Summary: "shows the members of the fleet, their pipelines, and the last moves",
		Detail:  "It asks Kafka alone, with the right to Describe the group.",
		Example: "cdc-outbox fleet status -c cdc-outbox.yaml\n" +
			"cdc-outbox fleet status -c cdc-outbox.yaml --json",
		Prepare: func(flags *flag.FlagSet) action {
			cfg, asJSON := declareConfig(flags), flags.Bool("json", false, "print JSON")
			return func(ctx context.Context, p *program) error {
				loaded, err := cfg.load(p)
				if err != nil {
					return err
				}
				r, err := admin.Fleet(ctx, loaded)
				if err != nil {
					return err
				}
				return p.show(r, *asJSON)
			}
		},
	}
}

func fleetDrainVerb() verb {
	return verb{
		Name:     "fleet drain",
		Argument: "MEMBER",
		Summary:  "moves a member's pipelines to others, one by one, and returns when it has none",
		Detail: "The member takes no pipeline that another can run, until fleet undrain or its restart. The\n" +
			"last members that could run a pipeline keep it. It needs the right to Read the group.",
		Example: "cdc-outbox fleet drain -c cdc-outbox.yaml outbox-2 --timeout 10m",
		Prepare: func(flags *flag.FlagSet) action { return prepareDrain(flags, "drain", true, 10*time.Minute) },
	}
}

func fleetUndrainVerb() verb {
	return verb{
		Name:     "fleet undrain",
		Argument: "MEMBER",
		Summary:  "lets a drained member take pipelines again",
		Detail:   "It needs the right to Read the group.",
		Example:  "cdc-outbox fleet undrain -c cdc-outbox.yaml outbox-2",
		Prepare:  func(flags *flag.FlagSet) action { return prepareDrain(flags, "undrain", false, time.Minute) },
	}
}

func prepareDrain(flags *flag.FlagSet, name string, drained bool, patience time.Duration) action {
	cfg := declareConfig(flags)
	timeout := flags.Duration("timeout", patience, "give up after this `DURATION`; the member stays as it is by then")
	return func(ctx context.Context, p *program) error {
		if *timeout <= 0 {
			return failure.Configf("for example --timeout 10m", "fleet %s --timeout %s leaves no time", name, *timeout)
		}
		loaded, err := cfg.load(p)
		if err != nil {
			return err
		}
		return admin.DrainFleet(ctx, loaded, flags.Arg(0), drained, *timeout, func(note string) { fmt.Fprintln(p.stderr, "note: "+note) })
	}
}
