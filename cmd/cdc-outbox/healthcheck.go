package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/httpapi"
)

const healthTimeout = 3 * time.Second

func healthcheckVerb() verb {
	return verb{
		Name:    "healthcheck",
		Summary: "asks a running connector whether it is well, for a container's health check",
		Detail:  "It reads the same configuration as run and asks /livez at http.listen. Exit code 0 means well, 1 ill.",
		Example: "cdc-outbox healthcheck -c cdc-outbox.yaml",
		Prepare: func(flags *flag.FlagSet) action {
			cfg := declareConfig(flags)
			ready := flags.Bool("ready", false, "ask /readyz: whether events flow, or would if there were any")
			return func(ctx context.Context, p *program) error {
				loaded, err := cfg.load(p)
				if err != nil {
					return err
				}
				path := "/livez"
				if *ready {
					path = "/readyz"
				}
				return ask(ctx, loaded.HTTP.Listen, path)
			}
		},
	}
}

// ask returns nil where the connector listening there answers 200.
func ask(ctx context.Context, listen, path string) error {
	address, ok := httpapi.Address(listen)
	if !ok {
		return failure.Configf("set http.listen to host:port with a fixed port", "http.listen %q has no address to ask", listen)
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	status, body, err := httpapi.Ask(ctx, address, path)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the connector answers %d %s: %s", status, http.StatusText(status), strings.Join(strings.Fields(string(body)), " "))
	}
	return err
}
