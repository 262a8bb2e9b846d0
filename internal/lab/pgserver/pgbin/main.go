// Command pgbin prints the directory of PostgreSQL's binaries, and first installs or
// downloads missing binaries; the Makefile's helper.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgserver"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "pgbin:", err)
		if remedy := failure.RemedyOf(err); remedy != "" {
			fmt.Fprintln(os.Stderr, "pgbin:", remedy)
		}
		os.Exit(1)
	}
}

func run() error {
	version := flag.Int("version", 0, "download this major `version`; 0 takes what is installed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := find(ctx, *version)
	if err != nil {
		return err
	}
	fmt.Println(dir)
	return nil
}

func find(ctx context.Context, version int) (string, error) {
	if version == 0 {
		return pgserver.Ensure(ctx, os.Stderr)
	}
	return pgserver.Download(ctx, version, os.Stderr)
}
