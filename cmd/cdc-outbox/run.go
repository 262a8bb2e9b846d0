package main

import (
	"context"
	"flag"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/cli"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
)

func runVerb() verb {
	return verb{
		Name:    "run",
		Summary: "runs the connector until SIGTERM, SIGINT or SIGHUP",
		Detail: "On the first signal it stops reading, drains what is in flight, confirms the last\n" +
			"position and exits with 0; a signal more than a second later ends it at once.",
		Example: "cdc-outbox run -c cdc-outbox.yaml\n" +
			"CDC_OUTBOX_SOURCE_URL=postgres://cdc@localhost/app cdc-outbox run --set sink.stdout=true",
		Prepare: func(flags *flag.FlagSet) action {
			cfg := declareConfig(flags)
			return func(ctx context.Context, p *program) error { return runConnector(ctx, p, cfg) }
		},
	}
}

func runConnector(ctx context.Context, p *program, flags *configFlags) error {
	cfg, err := flags.load(p)
	if err != nil {
		return err
	}
	log, err := wiring.NewLogger(cfg.Log, p.stderr)
	if err != nil {
		return err
	}
	if cfg.Log.Format != "console" {
		p.fatal = p.command.Log(log)
	}
	if err := p.checkOutput(cfg); err != nil {
		return err
	}
	surviveBrokenPipes()
	p.boundMemory(cfg.Each())
	connect := p.connect
	if connect == nil {
		connect = pipeline.Run
	}
	ver, rev := cli.Build(version, commit)
	announced := announceStop(ctx, log)
	err = connect(ctx, pipeline.Options{Config: cfg, Log: log, Stdout: p.stdout, Version: ver, Commit: rev, Invocation: p.command,
		Applying: p.boundMemory})
	announced()
	if err != nil {
		return err
	}
	log.Info("stopped", zap.NamedError("cause", context.Cause(ctx)))
	return nil
}

// announceStop logs that ctx ended: everything in flight may take a while to
// drain, in silence otherwise. A goroutine does so when that happens; the
// returned function joins it, and nothing is logged afterwards.
func announceStop(ctx context.Context, log *zap.Logger) (join func()) {
	logged := make(chan struct{})
	forget := context.AfterFunc(ctx, func() {
		defer close(logged)
		log.Info("stopping; a signal more than a second later ends the process at once", zap.NamedError("cause", context.Cause(ctx)))
	})
	return func() {
		if !forget() {
			<-logged
		}
	}
}
