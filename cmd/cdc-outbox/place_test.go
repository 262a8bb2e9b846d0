package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
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

// The start that repairs a lost slot does as printed.
func TestRemedyOfALostSlotRepairs(t *testing.T) {
	file := writeFile(t, "source: {url: postgres:///app}\nsink: {kafka: {brokers: [localhost:9092]}}\n")
	var onLoss []string
	connect := func(_ context.Context, opts pipeline.Options) error {
		onLoss = append(onLoss, opts.Config.Errors.OnLoss)
		_, loss := checkpoint.Verify(&checkpoint.Checkpoint{LSN: 1}, checkpoint.Server{CurrentLSN: 2})
		return checkpoint.OfferRepair(loss, opts.Config.Fleet.On())
	}
	said := executeWith(t.Context(), connect, nil, "run", "-c", file, "--set", "log.format=console")
	_, line, _ := strings.Cut(said.stderr, "`cdc-outbox ")
	line, rest, _ := strings.Cut(line, "`")
	if said.code != 3 || !strings.HasPrefix(line, "run --set errors.on_loss=repair -c ") || !strings.Contains(rest, "setup -c "+file) || !strings.Contains(rest, "repair -c "+file) {
		t.Fatalf("exit %d:\n%s", said.code, said.stderr)
	}
	executeWith(t.Context(), connect, nil, strings.Fields(line)...)
	if want := []string{config.LossStop, config.LossRepair}; !slices.Equal(onLoss, want) {
		t.Errorf("errors.on_loss was %v, want %v", onLoss, want)
	}

	// In a fleet a typed start would be a member.
	fleet := writeFile(t, "fleet: {group: f}\nsink: {kafka: {brokers: [localhost:9092]}}\npipelines: {a: {source: {url: postgres:///app}}}\n")
	said = executeWith(t.Context(), connect, nil, "run", "-c", fleet, "--set", "log.format=console")
	if said.code != 3 || strings.Contains(said.stderr, "`cdc-outbox run") || !strings.Contains(said.stderr, "members with errors.on_loss: repair") {
		t.Errorf("exit %d:\n%s", said.code, said.stderr)
	}
}
