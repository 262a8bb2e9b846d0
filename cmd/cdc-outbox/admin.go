package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/cdc-outbox/cdc-outbox/internal/admin"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

func setupVerb() verb {
	return verb{
		Name:    "setup",
		Summary: "creates what is missing: outbox table, publication, slot, least-privilege role",
		Detail: "It needs a source.url of a user who may create these. It can be run again, and\n" +
			"changes nothing that exists.",
		Example: "cdc-outbox setup -c cdc-outbox.yaml\n" +
			"cdc-outbox setup -c cdc-outbox.yaml --role cdc --password-env CDC_PASSWORD --writer app\n" +
			"cdc-outbox setup -c cdc-outbox.yaml --role cdc --print > setup.sql\n" +
			"cdc-outbox setup -c cdc-outbox.yaml --accept-gap   # after exit code 3; add --yes to do it\n" +
			"cdc-outbox setup -c cdc-outbox.yaml --accept-gap --skip-to 0/16B3748   # past a transaction that run refuses",
		Prepare: func(flags *flag.FlagSet) action {
			o := declareSetup(flags)
			return func(ctx context.Context, p *program) error { return runSetup(ctx, p, o) }
		},
	}
}

// setupFlags are the flags of setup.
type setupFlags struct {
	*adminFlags
	print, acceptGap, yes, publish *bool
	notify                         *bool
	schema, skipTo                 *string
	role                           *roleFlag
	writer, passwordEnv            *string
}

// roleFlag knows whether it was given.
type roleFlag struct {
	name  string
	given bool
}

func declareSetup(flags *flag.FlagSet) setupFlags {
	role := &roleFlag{}
	flags.Func("role", "create or complete the `ROLE` that the connector logs in as", func(name string) error {
		role.name, role.given = name, true
		return nil
	})
	return setupFlags{
		adminFlags:  declareAdmin(flags),
		print:       flags.Bool("print", false, "only print the SQL; connect to nothing"),
		schema:      flags.String("schema", "", "`COLUMNS` of a table that is created: debezium (the default) or snake"),
		role:        role,
		writer:      flags.String("writer", "", "grant to the `ROLE` of a service what writing events takes"),
		passwordEnv: flags.String("password-env", "", "with --role: set its password to the value of the environment `VARIABLE`, of which the server only gets what it stores"),
		notify:      flags.Bool("notify", false, "with source.mode: poll, create the trigger that notifies also where the server allows PREPARE TRANSACTION, which it breaks"),
		acceptGap:   flags.Bool("accept-gap", false, "after a loss (exit code 3): go on from where the slot stands or, where it is made anew, from the present; events in the gap may never be published"),
		yes:         flags.Bool("yes", false, "with --accept-gap: do it, not only say what would be done"),
		skipTo:      flags.String("skip-to", "", "with --accept-gap: only pass over the transaction that commits at `LSN`, which run refuses"),
		publish:     flags.Bool("snapshot", false, "with --accept-gap: the next run publishes the rows that are in the outbox first"),
	}
}

func runSetup(ctx context.Context, p *program, o setupFlags) error {
	for _, bad := range []struct {
		is           bool
		remedy, text string
	}{
		{(*o.yes || *o.publish || *o.skipTo != "") && !*o.acceptGap, "add --accept-gap, or leave them out", "setup takes --yes, --snapshot and --skip-to only with --accept-gap"},
		{*o.skipTo != "" && *o.publish, "leave out --snapshot", "--skip-to passes over one transaction and publishes nothing again"},
		{*o.print && *o.acceptGap, "leave out --print; without --yes nothing is changed", "setup cannot print what --accept-gap does"},
		{*o.print && *o.asJSON, "leave out --json", "setup --print prints SQL, which has no form in JSON"},
		{*o.passwordEnv != "" && o.role.name == "", "add --role, or leave out --password-env", "--password-env is for the role that --role names"},
		{o.role.given && o.role.name == "", "name the role, or leave out --role", "--role has no name: is a variable of the shell empty?"},
	} {
		if bad.is {
			return failure.Configf(bad.remedy, "%s", bad.text)
		}
	}
	if *o.acceptGap {
		return acceptGap(ctx, p, o)
	}
	schema, err := admin.ParseSchema(*o.schema)
	if err != nil {
		return err
	}
	opts := admin.SetupOptions{Schema: schema, Role: o.role.name, Writer: *o.writer, Notify: *o.notify}
	if name := *o.passwordEnv; name != "" {
		if opts.Password = setting.Secret(p.getenv(name)); opts.Password == "" {
			return failure.Configf("export "+name+"=…", "--password-env %s: the variable is not set, or empty", name)
		}
	}
	if *o.print {
		return printScripts(p, o, opts)
	}
	return o.each(ctx, p, func(ctx context.Context, cfg *config.Config) (report, error) { return admin.Setup(ctx, cfg, opts) })
}

// acceptGap is about a single pipeline: each gap needs a separate decision.
func acceptGap(ctx context.Context, p *program, o setupFlags) error {
	cfg, err := o.loadOne(p)
	if err != nil {
		return err
	}
	if *o.skipTo != "" {
		at, err := admin.ParseSkip(*o.skipTo)
		if err != nil {
			return err
		}
		skipped, err := admin.SkipTransaction(ctx, cfg, at, *o.yes)
		return decided(p, *o.asJSON, skipped, err)
	}
	gap, err := admin.AcceptGap(ctx, cfg, admin.GapOptions{Yes: *o.yes, Snapshot: *o.publish})
	return decided(p, *o.asJSON, gap, err)
}

// decided shows a report, unless there is none, also beside an error.
func decided[R interface {
	comparable
	report
}](p *program, asJSON bool, r R, err error) error {
	var none R
	if r == none {
		return err
	}
	return errors.Join(err, p.show(r, asJSON))
}

// reported is the action of a verb about one pipeline that shows a report.
func reported[O any, R interface {
	comparable
	report
}](f *adminFlags, options func(*program) (O, error), do func(context.Context, *config.Config, O) (R, error)) action {
	return func(ctx context.Context, p *program) error {
		opts, err := options(p)
		if err != nil {
			return err
		}
		cfg, err := f.loadOne(p)
		if err != nil {
			return err
		}
		r, err := do(ctx, cfg, opts)
		return decided(p, *f.asJSON, r, err)
	}
}

// printScripts prints the SQL of each pipeline, under a heading: only the
// configuration says which database the SQL is for.
func printScripts(p *program, o setupFlags, opts admin.SetupOptions) error {
	chosen, err := o.load(p)
	if err != nil {
		return err
	}
	for _, pipeline := range chosen {
		script, err := admin.Script(pipeline.Config, opts)
		if err != nil {
			return err
		}
		if pipeline.Name != "" {
			script = admin.Comment("Pipeline "+pipeline.Name+": run this in the database of its source.url") + script + "\n"
		}
		if _, err := io.WriteString(p.stdout, script); err != nil {
			return err
		}
	}
	return nil
}

func teardownVerb() verb {
	return verb{
		Name:    "teardown",
		Summary: "drops slot, publication and checkpoint, after --yes",
		Detail: "It needs a source.url of a user who may drop these. What was not published by then is lost\n" +
			"to the connector. The outbox table stays, and a publication that others may use.",
		Example: "cdc-outbox teardown -c cdc-outbox.yaml --yes",
		Prepare: func(flags *flag.FlagSet) action {
			yes := flags.Bool("yes", false, "do it; otherwise only say what would be dropped")
			return forEach(flags, func(ctx context.Context, cfg *config.Config) (report, error) {
				return admin.Teardown(ctx, cfg, *yes)
			})
		},
	}
}

func adoptVerb() verb {
	return verb{
		Name:    "adopt",
		Summary: "takes over a slot of another program, such as Debezium: notes it in the checkpoint",
		Detail: "The next run goes on from where the slot stands then, and ends with exit code 3 if the\n" +
			"slot was dropped. Its reader may still run. If it has stopped, the events that it has published\n" +
			"without confirming them are counted, by their ids in Kafka. Without --yes it changes nothing.",
		Example: "cdc-outbox adopt -c cdc-outbox.yaml --from http://connect.example.com:8083/connectors/orders\n" +
			"cdc-outbox adopt -c cdc-outbox.yaml --skip-published --yes",
		Prepare: func(flags *flag.FlagSet) action {
			o := declareAdmin(flags)
			d := declareDebezium(flags, "from")
			yes := flags.Bool("yes", false, "do it; otherwise only say what would be taken over")
			skip := flags.Bool("skip-published", false, "leave out the first transactions behind the slot's position whose events are all in Kafka")
			return func(ctx context.Context, p *program) error {
				opts := admin.AdoptOptions{Yes: *yes, SkipPublished: *skip, Note: func(note string) { fmt.Fprintln(p.stderr, "note: "+note) }}
				if *d.source != "" {
					if _, err := o.loadOne(p); err != nil { // a connector has a single slot
						return err
					}
					var err error
					if opts.Reader, err = d.reader(ctx, p); err != nil {
						return err
					}
				}
				return o.each(ctx, p, func(ctx context.Context, cfg *config.Config) (report, error) {
					r, err := admin.Adopt(ctx, cfg, opts)
					if r == nil {
						return nil, err
					}
					return r, err
				})
			}
		},
	}
}

func checkVerb() verb {
	return verb{
		Name:    "check",
		Summary: "checks every requirement of PostgreSQL and Kafka, and says how to fix what fails",
		Detail:  "It changes nothing. Exit code 2 if a check fails.",
		Example: "cdc-outbox check -c cdc-outbox.yaml",
		Prepare: func(flags *flag.FlagSet) action { return forEach(flags, found(admin.Check)) },
	}
}

func statusVerb() verb {
	return verb{
		Name:    "status",
		Summary: "shows the slot's lag, retained WAL, checkpoint, and who holds the slot",
		Detail:  "It asks PostgreSQL, the checkpoint's store and, at http.listen of this machine, the running\nconnector, and changes nothing. Exit code 3 if the slot is lost, 1 if events do not get through.",
		Example: "cdc-outbox status -c cdc-outbox.yaml --json",
		Prepare: func(flags *flag.FlagSet) action { return forEach(flags, found(admin.Status)) },
	}
}

// work is a verb's work for a single pipeline.
type work func(context.Context, *config.Config) (report, error)

// forEach is the action of a verb that does its work for each pipeline.
func forEach(flags *flag.FlagSet, do work) action {
	o := declareAdmin(flags)
	return func(ctx context.Context, p *program) error { return o.each(ctx, p, do) }
}

// found is the work of a verb that only looks.
func found[R interface {
	report
	Err() error
}](look func(context.Context, *config.Config) R) work {
	return func(ctx context.Context, cfg *config.Config) (report, error) {
		r := look(ctx, cfg)
		return r, r.Err()
	}
}

func tailVerb() verb {
	return verb{
		Name:    "tail",
		Summary: "prints events as they would be published, from now on, confirming nothing",
		Detail:  "It reads through a temporary slot of its own, so that it can run beside a connector.",
		Example: "cdc-outbox tail -c cdc-outbox.yaml\n" +
			"cdc-outbox tail -c cdc-outbox.yaml --from-table --limit 10 --json",
		Prepare: func(flags *flag.FlagSet) action {
			o := declareAdmin(flags)
			fromTable := flags.Bool("from-table", false, "print the rows that are in the tables now, and end")
			limit := flags.Uint("limit", 0, "end after `N` events; 0 means no limit")
			return func(ctx context.Context, p *program) error {
				cfg, err := o.loadOne(p)
				if err != nil {
					return err
				}
				return admin.Tail(ctx, cfg, admin.TailOptions{
					FromTable: *fromTable, JSON: *o.asJSON, Limit: int(*limit), Out: p.stdout, Notes: p.stderr,
				})
			}
		},
	}
}
