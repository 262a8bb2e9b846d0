package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
)

// registry is Apicurio's schema registry.
type registry struct {
	process *rig.Process
	addr    string
	version string
}

func startRegistry(ctx context.Context) (*registry, error) {
	script, err := child.Script("registry.sh")
	if err != nil {
		return nil, err
	}
	version, err := child.Output(ctx, "", script, "fetch")
	if err != nil {
		return nil, err
	}
	r := &registry{version: lastLine(version)}
	if r.addr, err = freeport.TakeAddress(); err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(r.addr)
	if err != nil {
		return nil, err
	}
	if r.process, err = rig.Start("schema registry", exec.Command(script, "run", port)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	err = await.Ready(ctx, r.process.Exited(), func(ctx context.Context) error { return child.AnswersHTTP(ctx, r.addr) })
	if err != nil {
		err = r.process.Explain(fmt.Errorf("wait for the schema registry: %w", err))
		r.process.Kill()
		return nil, err
	}
	return r, nil
}

// confluent is the address of Confluent's API, and own of Apicurio's.
func (r *registry) confluent() string { return "http://" + r.addr + "/apis/ccompat/v7" }
func (r *registry) own() string       { return "http://" + r.addr + "/apis/registry/v2" }

// register makes the schema the subject's latest.
func (r *registry) register(ctx context.Context, subject string, schema sr.Schema) error {
	client, err := sr.NewClient(sr.URLs(r.confluent()), sr.HTTPClient(&http.Client{Timeout: connectTimeout}))
	if err != nil {
		return err
	}
	if _, err := client.CreateSchema(ctx, subject, schema); err != nil {
		return fmt.Errorf("register the schema %s: %w", subject, err)
	}
	return nil
}
