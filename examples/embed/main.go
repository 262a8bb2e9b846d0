// Command embed is a program with a connector in it. DATABASE_URL names the
// database, KAFKA_BROKER the broker.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/cdc-outbox/cdc-outbox/connector"
)

const settings = `
source: {url: "${DATABASE_URL}", snapshot: initial}
sink: {kafka: {brokers: ["${KAFKA_BROKER}"], create_topics: true}}
http: {listen: ""}
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Environ())
	if err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		fmt.Fprintln(os.Stderr, connector.Remedy(err))
	}
	os.Exit(connector.ExitCode(err))
}

func run(ctx context.Context, environ []string) error {
	return connector.Run(ctx, connector.Config{YAML: []byte(settings), Environ: environ})
}
