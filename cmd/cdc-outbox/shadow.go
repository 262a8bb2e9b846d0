package main

import (
	"context"
	"flag"
	"regexp"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/admin"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/debezium"
	"github.com/cdc-outbox/cdc-outbox/internal/debezium/connect"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

func shadowVerb() verb {
	return verb{
		Name:    "shadow",
		Summary: "compares what run would publish with what Debezium publishes, record by record, and publishes nothing",
		Detail: "It reads the log through a temporary slot beside Debezium's, and Debezium's topics from now on:\n" +
			"topic, key, value, headers, time, partition, order in each key. The state is on the page, in\n" +
			"/status and /metrics meanwhile, the report comes at the end: after --for, with --until-idle when\n" +
			"nothing comes any more, or at SIGTERM. Exit code 0 if all is equal, 3 for differences, 1 if\n" +
			"nothing or not everything could be compared.",
		Example: "cdc-outbox shadow -c cdc-outbox.yaml --against http://connect.example.com:8083/connectors/orders --for 1h\n" +
			"cdc-outbox shadow -c cdc-outbox.yaml --against connector.json --until-idle --json",
		Prepare: func(flags *flag.FlagSet) action {
			f := declareAdmin(flags)
			d := declareDebezium(flags, "against")
			length := flags.Duration("for", 0, "end after this `DURATION`; without it, at a signal")
			idle := flags.Bool("until-idle", false, "end when nothing has come for ten seconds, or, with events pending, for two minutes")
			byContent := flags.Bool("by-content", false, "pair records by topic, key and value, where Debezium's have no header id")
			prefix := flags.String("publish-prefix", "", "publish the records, too, to topics whose names begin with `PREFIX`")
			retained := flags.String("max-retained", "1GiB", "end when the temporary slot keeps more of the log than this `SIZE`")
			return func(ctx context.Context, p *program) error {
				most, err := config.ParseBytes(*retained)
				if err != nil {
					return failure.Configf(failure.RemedyOf(err), "--max-retained %s: %w", *retained, err)
				}
				cfg, err := f.loadOne(p)
				if err != nil {
					return err
				}
				place, err := d.read(ctx, p)
				if err != nil {
					return err
				}
				opts := admin.ShadowOptions{Slot: place.Slot, State: d.state(p), For: *length, UntilIdle: *idle, ByContent: *byContent,
					Prefix: *prefix, MaxRetained: most, Notes: p.stderr}
				like, _, err := transform.RouteOptions{By: cfg.Route.By, Regex: place.Regex, Topic: place.Topic}.Topics()
				if err != nil {
					return err
				}
				opts.Topics = []*regexp.Regexp{like}
				r, err := admin.Shadow(ctx, cfg, opts)
				return decided(p, *f.asJSON, r, err)
			}
		},
	}
}

// debeziumFlags name a connector of Debezium's.
type debeziumFlags struct {
	flag                      string
	source, user, passwordEnv *string
}

func declareDebezium(flags *flag.FlagSet, name string) *debeziumFlags {
	return &debeziumFlags{
		flag:        name,
		source:      flags.String(name, "", "Debezium's connector: a `FILE` as for import, or http://HOST:8083/connectors/NAME"),
		user:        flags.String("user", "", "the `NAME` for the worker's basic authentication"),
		passwordEnv: flags.String("password-env", "", "the environment `VARIABLE` with the password for it"),
	}
}

// workerLogin is the login of --user and --password-env.
func workerLogin(p *program, user, passwordEnv string) (connect.Login, error) {
	login := connect.Login{User: user}
	if passwordEnv != "" {
		if login.Password = p.getenv(passwordEnv); login.Password == "" {
			return login, failure.Configf("export "+passwordEnv+"=…", "--password-env %s: the variable is not set, or empty", passwordEnv)
		}
	}
	return login, nil
}

// read reads the connector's configuration.
func (d *debeziumFlags) read(ctx context.Context, p *program) (debezium.Place, error) {
	if *d.source == "" {
		return debezium.Place{}, failure.Configf("--"+d.flag+" http://HOST:8083/connectors/NAME, or a file with the connector's configuration", "Debezium's connector is not named")
	}
	login, err := workerLogin(p, *d.user, *d.passwordEnv)
	if err != nil {
		return debezium.Place{}, err
	}
	c, err := readConnector(ctx, *d.source, login)
	if err != nil {
		return debezium.Place{}, err
	}
	result, err := debezium.Translate(c, debezium.Choices{})
	if err != nil {
		return debezium.Place{}, err
	}
	place := result.Place()
	if strings.Contains(place.Slot, "${") {
		return debezium.Place{}, failure.Configf("name a file in which slot.name is the slot's name", "slot.name is %s, a reference that only Debezium's worker resolves", place.Slot)
	}
	return place, nil
}

// reader is the connector whose slot is to be taken over.
func (d *debeziumFlags) reader(ctx context.Context, p *program) (*admin.Reader, error) {
	place, err := d.read(ctx, p)
	if err != nil {
		return nil, err
	}
	return &admin.Reader{Slot: place.Slot, Publication: place.Publication, Plugin: place.Plugin, DropsSlot: place.DropsSlot, State: d.state(p)}, nil
}

// state asks the worker, if the connector is named by its address.
func (d *debeziumFlags) state(p *program) func(context.Context) (text string, runs bool, err error) {
	if !connect.IsAddress(*d.source) {
		return nil
	}
	return func(ctx context.Context) (string, bool, error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		login, err := workerLogin(p, *d.user, *d.passwordEnv)
		if err != nil {
			return "", false, err
		}
		state, err := connect.AskState(ctx, *d.source, login)
		if err != nil {
			return "", false, err
		}
		return state.String(), state.Runs(), nil
	}
}
