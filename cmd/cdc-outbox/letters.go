package main

import (
	"context"
	"flag"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/admin"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

func lettersListVerb() verb {
	return verb{
		Name:    "dead-letters list",
		Summary: "lists the dead letters, the newest last",
		Detail: "It counts the letters by reason and lists the newest, each with its place (partition/offset),\n" +
			"time, id, key, original topic, reason and error. It needs the right to Read the topic.",
		Example: "cdc-outbox dead-letters list -c cdc-outbox.yaml --since 24h\n" +
			"cdc-outbox dead-letters list -c cdc-outbox.yaml --reason record_too_large --json",
		Prepare: func(flags *flag.FlagSet) action {
			o := declareLetters(flags)
			o.declareChoice(flags)
			return reported(o.adminFlags, o.options, admin.ListDeadLetters)
		},
	}
}

func lettersShowVerb() verb {
	return verb{
		Name:    "dead-letters show",
		Summary: "shows a dead letter: key, headers, value and what was cut",
		Detail:  "A value that is no text is in base64.",
		Example: "cdc-outbox dead-letters show -c cdc-outbox.yaml --partition 0 --offset 17",
		Prepare: func(flags *flag.FlagSet) action {
			o := declareLetters(flags)
			show := reported(o.adminFlags, o.options, admin.ShowDeadLetter)
			return func(ctx context.Context, p *program) error {
				if *o.partition == -1 && *o.offset == -1 {
					return failure.Configf("take the numbers from `cdc-outbox dead-letters list`", "dead-letters show needs --partition and --offset")
				}
				return show(ctx, p)
			}
		},
	}
}

func lettersRedriveVerb() verb {
	return verb{
		Name:    "dead-letters redrive",
		Summary: "publishes the records of dead letters to their topics, after --publish",
		Detail: "Correct the cause first. It publishes key, value and headers of the original records, in\n" +
			"order per key, with the header cdc-redrive, and leaves out what a redrive has published\n" +
			"before. A letter that is cut, or of a row that could not become a record, is refused. The\n" +
			"rest of a key waits behind a letter that is left out. Without --publish it publishes nothing.",
		Example: "cdc-outbox dead-letters redrive -c cdc-outbox.yaml --reason missing_topic\n" +
			"cdc-outbox dead-letters redrive -c cdc-outbox.yaml --all --rate 100 --publish",
		Prepare: prepareRedrive,
	}
}

func prepareRedrive(flags *flag.FlagSet) action {
	o := declareLetters(flags)
	o.declareChoice(flags)
	flags.Var(&o.ids, "id", "only the letters of the event with this `ID`; repeatable")
	all := flags.Bool("all", false, "all letters")
	uncertain := flags.Bool("uncertain", false, "also letters whose record may have been published, and deleted or compacted since")
	rate := flags.Uint("rate", 0, "publish at most `N` letters a second; 0 means no limit")
	publish := flags.Bool("publish", false, "publish the letters; otherwise only list them")
	options := func(p *program) (opts admin.RedriveOptions, err error) {
		chosen := !o.since.IsZero() || len(o.reasons)+len(o.topics)+len(o.tables)+len(o.ids) > 0 || *o.partition != -1 || *o.offset != -1
		switch {
		case *all && chosen:
			return opts, failure.Configf("leave out --all", "--all is of no use beside flags that choose letters")
		case !*all && !chosen:
			return opts, failure.Configf("for all letters: --all", "dead-letters redrive needs --id, --reason, --topic, --table, --since, --partition and --offset, or --all")
		}
		opts = admin.RedriveOptions{Uncertain: *uncertain, Rate: int(min(*rate, math.MaxInt32)), Publish: *publish}
		opts.LetterOptions, err = o.options(p)
		opts.IDs = o.ids
		return opts, err
	}
	return reported(o.adminFlags, options, admin.Redrive)
}

// letterFlags are the flags of the verbs about dead letters.
type letterFlags struct {
	*adminFlags
	since           moment
	reasons, topics texts
	tables, ids     texts
	partition       *int
	offset          *int64
	limit           *uint
	timeout         *time.Duration
}

func declareLetters(flags *flag.FlagSet) *letterFlags {
	return &letterFlags{
		adminFlags: declareAdmin(flags),
		partition:  flags.Int("partition", -1, "with --offset: only the letter in this partition, by its `NUMBER`"),
		offset:     flags.Int64("offset", -1, "with --partition: only the letter at this `OFFSET`"),
		limit:      new(uint),
		timeout:    flags.Duration("timeout", 2*time.Minute, "how long to wait for brokers that do not answer"),
	}
}

// declareChoice declares the flags that choose several letters.
func (o *letterFlags) declareChoice(flags *flag.FlagSet) {
	flags.Var(&o.since, "since", "only letters from this `TIME` on: 2026-11-01T00:00:00Z, or 24h for so long ago")
	flags.Var(&o.reasons, "reason", "only letters with this `REASON`; repeatable")
	flags.Var(&o.topics, "topic", "only letters for this original `TOPIC`; repeatable")
	flags.Var(&o.tables, "table", "only letters of rows of this `TABLE`, schema.table: pipelines may share the topic; repeatable")
	o.limit = flags.Uint("limit", 20, "list at most `N` letters")
}

// options are the flags' for letters.
func (o *letterFlags) options(p *program) (admin.LetterOptions, error) {
	opts := admin.LetterOptions{
		Since: o.since.Time, Reasons: o.reasons, Topics: o.topics, Tables: o.tables, Limit: int(min(*o.limit, math.MaxInt32)), Timeout: *o.timeout, Notes: p.stderr,
	}
	known := make([]string, 0, len(transform.Reasons()))
	for _, r := range transform.Reasons() {
		known = append(known, string(r))
	}
	for _, reason := range o.reasons {
		if !slices.Contains(known, reason) {
			return opts, failure.Configf("it is one of "+strings.Join(known, ", "), "--reason %q is none that letters have", reason)
		}
	}
	if err := usable(*o.timeout, &o.since); err != nil {
		return opts, err
	}
	switch {
	case *o.partition == -1 && *o.offset == -1:
		return opts, nil
	case *o.partition < 0 || *o.partition > math.MaxInt32 || *o.offset < 0:
		return opts, failure.Configf("take the numbers from `cdc-outbox dead-letters list`", "a letter has both --partition and --offset, from 0 on")
	}
	opts.At = &admin.LetterPlace{Partition: int32(*o.partition), Offset: *o.offset}
	return opts, nil
}
