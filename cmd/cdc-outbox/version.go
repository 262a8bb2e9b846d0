package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"

	"github.com/cdc-outbox/cdc-outbox/internal/cli"
)

// Set by the release build: -ldflags "-X main.version=v1.2.3 -X
// main.commit=…".
var version, commit string

func versionVerb() verb {
	return verb{
		name:    "version",
		summary: "prints version, commit and Go version",
		example: "cdc-outbox version",
		prepare: func(*flag.FlagSet) action { return printVersion },
	}
}

func printVersion(_ context.Context, p *program) error {
	ver, rev := build()
	_, err := fmt.Fprintf(p.stdout, "cdc-outbox %s\ncommit %s\n%s %s/%s\n", ver, rev, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// build returns version and commit of the program.
func build() (ver, rev string) { return cli.Build(version, commit) }
