package main

import (
	"context"
	"flag"
	"io"
	"os"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/demo"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline"
)

func demoVerb() verb {
	return verb{
		name:    "demo",
		summary: "shows the whole thing on this machine, with nothing to configure",
		detail: "It starts a throwaway PostgreSQL, a Kafka broker on a loopback port, the\n" +
			"connector, an order service and a consumer, and removes them all at the end.\n" +
			"CDC_OUTBOX_PG_BIN names the directory of the PostgreSQL programs to use.",
		example: "cdc-outbox demo --events 20",
		prepare: func(flags *flag.FlagSet) action {
			events := flags.Uint("events", 0, "end after `N` events, with a summary; 0 goes on until Ctrl-C")
			return func(ctx context.Context, p *program) error {
				return demo.Run(ctx, demo.Options{
					Events:  int(*events),
					Out:     p.stdout,
					Color:   p.wantsColor(),
					Connect: p.connectDemo,
				})
			}
		},
	}
}

// connectDemo runs the connector as run does, but logs what goes wrong only:
// the demo shows the rest itself.
func (p *program) connectDemo(ctx context.Context, cfg *config.Config) error {
	log, err := newLogger(config.Log{Level: "warn", Format: "console"}, p.stderr)
	if err != nil {
		return err
	}
	ver, rev := build()
	return pipeline.Run(ctx, pipeline.Options{Config: cfg, Log: log, Metrics: metrics.New(ver, rev), Version: ver, Stdout: io.Discard})
}

// wantsColor is true on a terminal, unless NO_COLOR (https://no-color.org) or
// a dumb terminal forbid it.
func (p *program) wantsColor() bool {
	file, ok := p.stdout.(*os.File)
	if !ok || p.getenv("NO_COLOR") != "" || p.getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
