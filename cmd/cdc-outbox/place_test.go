package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/invocation"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline"
)

// Failure mode 142. The error that ends the program as a service names the line
// to type there.
func TestRemedyNamesTheLineForThePlace(t *testing.T) {
	for place, want := range map[invocation.Place]string{
		invocation.Shell:      "`cdc-outbox setup -c outbox.yaml --set log.format=json --accept-gap`",
		invocation.Container:  "`docker compose run --rm --no-deps cdc-outbox setup -c outbox.yaml --set log.format=json --accept-gap`",
		invocation.Kubernetes: "`deploy/kubernetes/verb.sh setup -c outbox.yaml --set log.format=json --accept-gap`",
		invocation.Systemd:    "`cdc-outbox-verb setup -c outbox.yaml --set log.format=json --accept-gap`",
	} {
		for _, format := range []string{"json", "console"} {
			file := writeFile(t, "source: {url: postgres:///app}\n")
			var stderr bytes.Buffer
			p := &program{stdout: &bytes.Buffer{}, stderr: &stderr, connect: func(context.Context, pipeline.Options) error {
				return failure.Lossf(catalog.AcceptGap, "the slot is gone")
			}}
			p.command.Place = place
			code := p.run(t.Context(), []string{"run", "-c", file, "--set", "log.format=" + format})
			got := strings.NewReplacer(file, "outbox.yaml", "=console", "=json").Replace(stderr.String())
			if code != 3 || !strings.Contains(got, want) {
				t.Errorf("%s, exit %d, want %s:\n%s", format, code, want, got)
			}
		}
	}
}
