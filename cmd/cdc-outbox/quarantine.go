package main

import (
	"context"
	"flag"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/admin"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/quarantine"
)

func quarantineListVerb() verb {
	return verb{
		Name:    "quarantine list",
		Summary: "lists the keys that are parked behind a bad event, the oldest first",
		Detail: "Each key has the number, id, reason and error of its first event. Commands that no instance\n" +
			"has carried out yet are listed, too. It needs the right to Read the topic.",
		Example: "cdc-outbox quarantine list -c cdc-outbox.yaml --limit 100 --json",
		Prepare: func(flags *flag.FlagSet) action {
			o := declareQuarantine(flags)
			o.limit = flags.Uint("limit", 20, "list at most `N` keys")
			return reported(o.adminFlags, o.options, admin.ListQuarantine)
		},
	}
}

func quarantineShowVerb() verb {
	return verb{
		Name:    "quarantine show",
		Summary: "shows a parked event: key, headers, value and the events behind it",
		Detail:  "A value that is no text is in base64.",
		Example: "cdc-outbox quarantine show -c cdc-outbox.yaml --event 1790000000001",
		Prepare: func(flags *flag.FlagSet) action {
			o := declareQuarantine(flags)
			flags.Var(&o.numbers, "event", "the `NUMBER` of the event")
			show := reported(o.adminFlags, o.options, admin.ShowParked)
			return func(ctx context.Context, p *program) error {
				if len(o.numbers) != 1 {
					return failure.Configf("take it from `cdc-outbox quarantine list`", "quarantine show needs one --event")
				}
				return show(ctx, p)
			}
		},
	}
}

// commandVerb is a verb that the active instance carries out.
func commandVerb(what quarantine.Verb, summary, detail, example string) verb {
	return verb{
		Name: "quarantine " + string(what), Summary: summary,
		Detail:  detail + "\nThe active instance does it. Without --yes it only says about which keys it is.",
		Example: example,
		Prepare: func(flags *flag.FlagSet) action {
			o := declareQuarantine(flags)
			flags.Var(&o.numbers, "event", "the `NUMBER` of the first event of a key; repeatable")
			o.limit = flags.Uint("limit", 20, "list at most `N` keys")
			yes := flags.Bool("yes", false, "do it")
			all := flags.Bool("all", false, "all keys")
			flags.Var(&o.reasons, "reason", "keys whose first event has this `REASON`; repeatable")
			return func(ctx context.Context, p *program) error {
				switch chosen := len(o.numbers)+len(o.reasons) > 0; {
				case *all && chosen:
					return failure.Configf("leave out --all", "--all is of no use beside --event and --reason")
				case !*all && !chosen:
					return failure.Configf("for all keys: --all", "quarantine %s needs --event or --reason, or --all", what)
				}
				o.all = *all
				return commandOf(o, quarantine.Command{Verb: what}, yes)(ctx, p)
			}
		},
	}
}

func quarantineRetryVerb() verb {
	return commandVerb(quarantine.Retry, "publishes parked events as they are, and those behind them",
		"Correct the cause first: the topic, its limits, a schema. A row that could not become a record\n"+
			"needs edit. A key flows again once all of its events are published.",
		"cdc-outbox quarantine retry -c cdc-outbox.yaml --event 1790000000001 --yes\n"+
			"cdc-outbox quarantine retry -c cdc-outbox.yaml --reason record_too_large --yes")
}

func quarantineSkipVerb() verb {
	return commandVerb(quarantine.Skip, "leaves parked events out, and publishes those behind them",
		"The event is gone for consumers: it is in the outbox table only.",
		"cdc-outbox quarantine skip -c cdc-outbox.yaml --event 1790000000001 --yes")
}

func quarantineReleaseVerb() verb {
	return commandVerb(quarantine.Release, "leaves all bad events of keys out, and publishes the others",
		"It is skip for each bad event of the key.",
		"cdc-outbox quarantine release -c cdc-outbox.yaml --event 1790000000001 --yes")
}

func quarantineEditVerb() verb {
	return verb{
		Name:    "quarantine edit",
		Summary: "publishes a parked event with other contents, and those behind it",
		Detail: "What is not given stays as it was. The headers named replace those of the same name. The\n" +
			"outbox row stays as it is. The active instance does it. Without --yes nothing is done.",
		Example: "cdc-outbox quarantine edit -c cdc-outbox.yaml --event 1790000000001 --value-file fixed.json --yes\n" +
			"cdc-outbox quarantine edit -c cdc-outbox.yaml --event 1790000000001 --topic outbox.event.order --key 42 --yes",
		Prepare: prepareEdit,
	}
}

func prepareEdit(flags *flag.FlagSet) action {
	o := declareQuarantine(flags)
	flags.Var(&o.numbers, "event", "the `NUMBER` of the first event of a key")
	yes := flags.Bool("yes", false, "do it")
	file := flags.String("value-file", "", "the `FILE` with the new value; - for standard input")
	null := flags.Bool("null-value", false, "make the value null")
	topic := flags.String("topic", "", "the new `TOPIC`")
	key := flags.String("key", "", "the new `KEY`")
	headers := make(map[string]string)
	flags.Func("header", "a new header, `NAME=VALUE`; repeatable", func(text string) error {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return failure.Configf("write NAME=VALUE", "it has no name, or no value")
		}
		headers[name] = value
		return nil
	})
	return func(ctx context.Context, p *program) error {
		switch {
		case len(o.numbers) != 1:
			return failure.Configf("take it from `cdc-outbox quarantine list`", "quarantine edit needs one --event")
		case *file != "" && *null:
			return failure.Configf("leave out one of them", "--value-file and --null-value exclude each other")
		case *file == "" && !*null && *topic == "" && *key == "" && len(headers) == 0:
			return failure.Configf("to publish it as it is: cdc-outbox quarantine retry", "quarantine edit needs --value-file, --null-value, --topic, --key or --header")
		}
		c := quarantine.Command{Verb: quarantine.Edit, Edit: &quarantine.Edits{Topic: *topic, Key: []byte(*key), Value: *file != "" || *null, Null: *null, Headers: headers}}
		if *file != "" {
			var err error
			if c.Value, err = readValue(*file); err != nil {
				return failure.Configf("name a file that can be read", "--value-file: %w", err)
			}
		}
		return commandOf(o, c, yes)(ctx, p)
	}
}

func readValue(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(os.Stdin)
	}
	return os.ReadFile(file)
}

// quarantineFlags are the flags of the verbs about the quarantine.
type quarantineFlags struct {
	*adminFlags
	numbers numbers
	reasons texts
	all     bool
	limit   *uint
	timeout *time.Duration
}

// numbers are the values of a repeatable flag.
type numbers []uint64

// String implements flag.Value.
func (n *numbers) String() string { return "" }

// Set implements flag.Value.
func (n *numbers) Set(text string) error {
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return failure.Configf("take it from `cdc-outbox quarantine list`", "%q is no number of an event", text)
	}
	*n = append(*n, number)
	return nil
}

func declareQuarantine(flags *flag.FlagSet) *quarantineFlags {
	limit := uint(20)
	return &quarantineFlags{
		adminFlags: declareAdmin(flags), limit: &limit,
		timeout: flags.Duration("timeout", 30*time.Second, "how long to wait for brokers, and for the active instance"),
	}
}

func (o *quarantineFlags) options(p *program) (admin.QuarantineOptions, error) {
	if *o.timeout <= 0 {
		return admin.QuarantineOptions{}, failure.Configf("write a time, such as 30s", "--timeout %s is none", *o.timeout)
	}
	return admin.QuarantineOptions{
		Numbers: o.numbers, All: o.all, Reasons: o.reasons, Limit: int(min(*o.limit, math.MaxInt32)), Timeout: *o.timeout, Notes: p.stderr,
	}, nil
}

// commandOf is the action of a command.
func commandOf(o *quarantineFlags, c quarantine.Command, yes *bool) action {
	return reported(o.adminFlags, o.options, func(ctx context.Context, cfg *config.Config, opts admin.QuarantineOptions) (*admin.QuarantineCommand, error) {
		return admin.CommandQuarantine(ctx, cfg, opts, c, *yes)
	})
}
