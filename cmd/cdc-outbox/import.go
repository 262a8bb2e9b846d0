package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/admin"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/debezium"
	"github.com/cdc-outbox/cdc-outbox/internal/debezium/connect"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

func importVerb() verb {
	return verb{
		Name:     "import debezium",
		Argument: "FILE|URL",
		Summary:  "writes the configuration for the records of a Debezium connector, with a verdict on each option",
		Detail: "It reads a PostgreSQL connector with the outbox event router: connector JSON, Java properties,\n" +
			"a KafkaConnector of Strimzi, Debezium Server's application.properties, or the address of the\n" +
			"connector at a Connect worker. The configuration goes to standard output or -o, the report to\n" +
			"standard error; secrets to neither. Then it checks the result as check does. Exit code 2 if a\n" +
			"check fails or an option is to be decided on.",
		Example: "cdc-outbox import debezium connector.json --worker connect-distributed.properties -o cdc-outbox.yaml\n" +
			"cdc-outbox import debezium http://connect.example.com:8083/connectors/orders --user admin --password-env CONNECT_PASSWORD --brokers kafka-1.example.com:9092",
		Prepare: func(flags *flag.FlagSet) action {
			o := &importFlags{
				out:         flags.String("o", "", "write the configuration to this `FILE`, which must not exist"),
				worker:      flags.String("worker", "", "the Connect worker's properties `FILE`, or the environment of its container: converters, brokers, logins"),
				brokers:     flags.String("brokers", "", "bootstrap brokers, `HOST:PORT`,…, which connectors do not know"),
				router:      flags.String("router", "", "the outbox event router of this `NAME`, where a connector has several"),
				user:        flags.String("user", "", "the `NAME` for the worker's basic authentication"),
				passwordEnv: flags.String("password-env", "", "the environment `VARIABLE` with the password for it"),
				noCheck:     flags.Bool("no-check", false, "do not check the result against PostgreSQL and Kafka"),
				asJSON:      flags.Bool("json", false, "print report, configuration and checks as JSON on standard output"),
			}
			return func(ctx context.Context, p *program) error { return o.run(ctx, p, flags.Arg(0)) }
		},
	}
}

// importFlags are the flags of import debezium.
type importFlags struct {
	out, worker, brokers, router, user, passwordEnv *string
	noCheck, asJSON                                 *bool
}

// imported is the report in JSON.
type imported struct {
	*debezium.Result
	Open          int                `json:"to_decide"`
	Configuration string             `json:"configuration"`
	Check         *admin.CheckReport `json:"check,omitempty"`
	// Refused is the reason why the configuration does not load.
	Refused string `json:"refused,omitempty"`
}

func (o *importFlags) run(ctx context.Context, p *program, source string) error {
	result, err := o.translate(ctx, p, source)
	if err != nil {
		return err
	}
	text, err := result.YAML()
	if err != nil {
		return err
	}
	if err := o.write(p, text); err != nil {
		return err
	}
	report := &imported{Result: result, Open: len(result.Open()), Configuration: string(text)}
	faults := o.check(ctx, p, report)
	if err := o.show(p, report); err != nil {
		return err
	}
	if err := o.undecided(result); err != nil {
		return err
	}
	return faults
}

// translate reads and translates the input.
func (o *importFlags) translate(ctx context.Context, p *program, source string) (*debezium.Result, error) {
	login, err := workerLogin(p, *o.user, *o.passwordEnv)
	if err != nil {
		return nil, err
	}
	c, err := readConnector(ctx, source, login)
	if err != nil {
		return nil, err
	}
	if *o.worker != "" {
		text, err := readInput(*o.worker)
		if err != nil {
			return nil, err
		}
		if c.Worker, err = debezium.ReadWorker(*o.worker, text); err != nil {
			return nil, err
		}
	}
	var brokers []string
	for broker := range strings.SplitSeq(*o.brokers, ",") {
		if broker = strings.TrimSpace(broker); broker != "" {
			brokers = append(brokers, broker)
		}
	}
	return debezium.Translate(c, debezium.Choices{Router: *o.router, Brokers: brokers})
}

// readConnector reads the connector from a file, or from a worker.
func readConnector(ctx context.Context, source string, login connect.Login) (*debezium.Connector, error) {
	if !connect.IsAddress(source) {
		text, err := readInput(source)
		if err != nil {
			return nil, err
		}
		return debezium.Read(source, text)
	}
	answer, err := connect.Ask(ctx, source, login)
	if err != nil {
		return nil, err
	}
	c, err := debezium.Read("the worker's answer", answer.Connector)
	if err == nil {
		c.Version = answer.Version
	}
	return c, err
}

// readInput reads a file, but for the bytes no configuration has.
func readInput(path string) ([]byte, error) {
	const largest = 4 << 20
	file, err := os.Open(path)
	if err != nil {
		return nil, failure.Configf("name a readable file, or the connector's address: http://HOST:8083/connectors/NAME", "%s cannot be read: %s", path, setting.Reason(err))
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, largest))
	if err != nil {
		return nil, failure.Configf("name a readable file", "%s cannot be read: %s", path, setting.Reason(err))
	}
	return text, nil
}

// write puts the configuration into the new file, or onto standard output.
func (o *importFlags) write(p *program, text []byte) error {
	if *o.out == "" {
		if *o.asJSON {
			return nil // within
		}
		_, err := p.stdout.Write(text)
		return err
	}
	file, err := os.OpenFile(*o.out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return failure.Configf("choose another name, or move the file away", "%s exists, and import overwrites nothing", *o.out)
	}
	if err != nil {
		return failure.Configf("choose a place to write to", "%s cannot be written: %s", *o.out, setting.Reason(err))
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

// check loads the configuration, for a check against both servers. The input's own
// secrets are known for the check alone.
func (o *importFlags) check(ctx context.Context, p *program, report *imported) error {
	file := cmp.Or(*o.out, "the written configuration")
	p.command.File = *o.out
	cfg, err := config.Load(config.Options{
		File: file, Text: []byte(report.Configuration), Environ: append(report.Environ(), p.environ...),
	})
	if err != nil {
		report.Refused = err.Error()
		return err
	}
	if *o.noCheck {
		return nil
	}
	report.Check = admin.Check(ctx, cfg)
	return report.Check.Err()
}

// show tells the verdicts and the checks.
func (o *importFlags) show(p *program, report *imported) error {
	if *o.asJSON {
		return p.show(report, true)
	}
	var b strings.Builder
	err := report.WriteText(&b)
	if report.Check != nil {
		b.WriteString("\n")
		err = errors.Join(err, report.Check.WriteText(&b))
	}
	if report.Refused != "" && report.Open > 0 { // or it is the error
		b.WriteString("\n" + report.Refused + "\n")
	}
	_, writeErr := io.WriteString(p.stderr, p.command.In(b.String()))
	return errors.Join(err, writeErr)
}

// undecided is an error about options for a person to decide on.
func (o *importFlags) undecided(result *debezium.Result) error {
	var names []string
	for _, v := range result.Open() {
		if !slices.Contains(names, v.Option) {
			names = append(names, v.Option)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return failure.Configf(fmt.Sprintf("edit %s, whose comments tell the reasons, then: cdc-outbox check -c %s", cmp.Or(*o.out, "the configuration"), cmp.Or(*o.out, "FILE")),
		"to decide before a start: %s", strings.Join(names, ", "))
}
