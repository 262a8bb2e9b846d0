package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/httpapi"
)

const healthTimeout = 3 * time.Second

func healthcheckVerb() verb {
	return verb{
		name:    "healthcheck",
		summary: "asks a running connector whether it is well, for a container's health check",
		detail:  "It reads the same configuration as run and asks /livez at http.listen. Exit code 0 means well, 1 ill.",
		example: "cdc-outbox healthcheck -c cdc-outbox.yaml",
		prepare: func(flags *flag.FlagSet) action {
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

// ask returns nil where the connector that listens there answers 200.
func ask(ctx context.Context, listen, path string) error {
	address, ok := httpapi.Address(listen)
	if !ok {
		return failure.Configf("set http.listen to host:port with a fixed port", "http.listen %q has no address to ask", listen)
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return fmt.Errorf("ask http.listen: %w", err)
	}
	// A proxy of the environment must not come between the two.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("the connector does not answer: %w", err)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return fmt.Errorf("read the connector's answer: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the connector answers %s: %s", answer.Status, strings.Join(strings.Fields(string(body)), " "))
	}
	return nil
}
