package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/cmd/cdc-outbox-idempotency/internal/keystore"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/base/cli"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/nearest"
)

// storeEnv names the store where --store does not: a URL with a password should
// not be in the list of processes.
const storeEnv = "CDC_OUTBOX_IDEMPOTENCY_STORE"

const storeDetail = "The store is named by --store or " + storeEnv + ": redis://host:6379/0,\n" +
	"redis://host:6379?cluster=true, postgres://user@host/database or dynamodb://?region=eu-west-1."

// keyFlags are the flags of the verbs about keys.
type keyFlags struct {
	store, name, scope, id *string
	asJSON                 *bool
}

func declareKey(flags *flag.FlagSet) *keyFlags {
	return &keyFlags{
		store:  flags.String("store", "", "the `URL` of the store; also "+storeEnv),
		name:   flags.String("name", "", "the `TABLE` (postgres, dynamodb) or prefix of the keys (redis), where it is not the default"),
		scope:  flags.String("scope", "", "the consumer's `SCOPE`"),
		id:     flags.String("id", "", "the message's `ID`"),
		asJSON: flags.Bool("json", false, "print JSON"),
	}
}

// openStore opens the store the flag, or the environment, names.
func openStore(ctx context.Context, p *program, from, name string) (keystore.Store, error) {
	if from == "" {
		from = p.getenv(storeEnv)
	}
	if from == "" {
		return nil, failure.Configf("add --store URL, or export "+storeEnv, "no store given")
	}
	return keystore.Open(ctx, from, name)
}

// open opens the store, after the key was found to be possible.
func (k *keyFlags) open(ctx context.Context, p *program, needID bool) (keystore.Store, storage.Key, error) {
	key := storage.Key{Scope: *k.scope, ID: *k.id}
	if key.Scope == "" {
		return nil, key, failure.Configf("add --scope, as the consumer's configuration has it", "no scope given")
	}
	if key.ID == "" && needID {
		return nil, key, failure.Configf("add --id, the message's header id", "no message given")
	}
	store, err := openStore(ctx, p, *k.store, *k.name)
	return store, key, err
}

// prepare declares the flags of a verb for a single message.
func prepare(do func(context.Context, keystore.Store, storage.Key) (report, error)) func(*flag.FlagSet) action {
	return func(flags *flag.FlagSet) action {
		k := declareKey(flags)
		return func(ctx context.Context, p *program) error {
			store, key, err := k.open(ctx, p, true)
			if err != nil {
				return err
			}
			defer store.Close()
			done, err := do(ctx, store, key)
			if err != nil {
				return explainKey(err)
			}
			return p.show(done, *k.asJSON)
		}
	}
}

func inspectVerb() verb {
	return verb{
		Name:    "inspect",
		Summary: "shows what a consumer's store knows of a message",
		Detail:  storeDetail,
		Example: name + " inspect --store redis://localhost:6379/0 --scope shipping --id 0193a2f4-6c1e-7b7e-8f10-7f6c1f0f2c11",
		Prepare: prepare(func(ctx context.Context, store keystore.Store, key storage.Key) (report, error) {
			record, err := store.Inspect(ctx, key)
			return keyReport{record}, err
		}),
	}
}

func releaseVerb() verb {
	return verb{
		Name:    "release",
		Summary: "lets a message that is being processed, waits or was given up be run again at once",
		Detail:  storeDetail + "\n\nWhoever holds its lease loses it. A completed message stays completed.",
		Example: name + " release --store redis://localhost:6379/0 --scope shipping --id 0193a2f4-6c1e-7b7e-8f10-7f6c1f0f2c11",
		Prepare: prepare(func(ctx context.Context, store keystore.Store, key storage.Key) (report, error) {
			before, err := store.Release(ctx, key)
			return releaseReport{Before: keyReport{before}}, err
		}),
	}
}

func purgeVerb() verb {
	return verb{
		Name:    "purge",
		Summary: "forgets messages, so that they would be run again if they came again",
		Detail: storeDetail + "\n\nWithout --id and --state it is all completed and given up messages of the scope.\n" +
			"Without --yes it changes nothing.",
		Example: name + " purge --store redis://localhost:6379/0 --scope shipping --state failed --older 168h --yes",
		Prepare: func(flags *flag.FlagSet) action {
			k := declareKey(flags)
			states := flags.String("state", "", "only messages in these `STATES`: processing, completed, retryable, failed, separated by commas")
			older := flags.Duration("older", 0, "only messages unchanged for this `DURATION`")
			yes := flags.Bool("yes", false, "do it")
			return func(ctx context.Context, p *program) error {
				chosen, err := parseStates(*states)
				if err != nil {
					return err
				}
				return k.purge(ctx, p, storage.Filter{States: chosen, UnchangedFor: *older}, *yes)
			}
		},
	}
}

func (k *keyFlags) purge(ctx context.Context, p *program, filter storage.Filter, yes bool) error {
	store, key, err := k.open(ctx, p, false)
	if err != nil {
		return err
	}
	defer store.Close()
	filter.Scope, filter.ID = key.Scope, key.ID
	if filter.UnchangedFor < 0 {
		return failure.Configf("write for example --older 168h", "--older %s is negative", filter.UnchangedFor)
	}
	if !yes {
		return failure.Configf("add --yes to do it", "nothing was purged: messages that are forgotten are run again if they come again")
	}
	n, err := store.Purge(ctx, filter)
	if err != nil {
		return fmt.Errorf("%d messages were purged before this: %w", n, explainKey(err))
	}
	return p.show(purgeReport{Purged: n}, *k.asJSON)
}

// operable are the values of --state: the states of existing messages.
var operable = []storage.State{storage.Processing, storage.Completed, storage.Retryable, storage.Failed}

func parseStates(text string) ([]storage.State, error) {
	if text == "" {
		return nil, nil
	}
	var states []storage.State
	for name := range strings.SplitSeq(text, ",") {
		var state storage.State
		name = strings.TrimSpace(name)
		if err := state.UnmarshalText([]byte(name)); err != nil || !slices.Contains(operable, state) {
			return nil, failure.Configf(stateRemedy(name), "--state: unknown state%s", cli.Quote(name))
		}
		states = append(states, state)
	}
	return states, nil
}

func stateRemedy(name string) string {
	var names []string
	for _, s := range operable {
		names = append(names, s.String())
	}
	if near := nearest.To(name, names); near != "" {
		return "did you mean " + near + "?"
	}
	return "the states are " + strings.Join(names, ", ")
}

// explainKey adds the remedy for a store's error.
func explainKey(err error) error {
	switch {
	case errors.Is(err, storage.ErrCompleted):
		return failure.Configf(name+" purge with the same flags has it run again when it comes again", "%w", err)
	case errors.Is(err, storage.ErrBadKey):
		return failure.Configf("correct --scope and --id", "%w", err)
	case keystore.Refused(err):
		return failure.Configf("correct the URL of the store, --name, or what the server says is missing", "%w", err)
	}
	return err
}

// timeShown is a time for people, "" for none.
func timeShown(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
