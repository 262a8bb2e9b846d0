package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/nearest"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/invocation"
)

// adminFlags are the flags of the operator's verbs.
type adminFlags struct {
	cfg      *configFlags
	pipeline *string
	asJSON   *bool
	// faults are of the sources of pipelines; set by load.
	faults error
}

func declareAdmin(flags *flag.FlagSet) *adminFlags {
	return &adminFlags{
		cfg:      declareConfig(flags),
		pipeline: flags.String("pipeline", "", "only the pipeline of that `NAME`, where the configuration has several"),
		asJSON:   flags.Bool("json", false, "print JSON"),
	}
}

// load returns the pipelines the verb is about.
func (a *adminFlags) load(p *program) ([]config.Pipeline, error) {
	p.command.Pipeline = *a.pipeline
	cfg, err := a.cfg.load(p)
	if err != nil {
		return nil, err
	}
	if *a.pipeline == "" {
		a.faults = cfg.Faults()
		return cfg.Each(), nil
	}
	names := make([]string, len(cfg.Pipelines))
	for i, candidate := range cfg.Pipelines {
		if candidate.Name == *a.pipeline {
			return cfg.Pipelines[i : i+1], nil
		}
		names[i] = candidate.Name
	}
	if err := cfg.Faults(); err != nil { // it may be in a source with a fault
		return nil, err
	}
	remedy := "the configuration has no pipelines; leave --pipeline out"
	if len(names) > 0 {
		remedy = "it has " + strings.Join(names, ", ")
	}
	if near := nearest.To(*a.pipeline, names); near != "" {
		remedy = "did you mean " + near + "?"
	}
	return nil, failure.Configf(remedy, "the configuration has no pipeline %q", *a.pipeline)
}

// loadOne returns the verb's single pipeline.
func (a *adminFlags) loadOne(p *program) (*config.Config, error) {
	chosen, err := a.load(p)
	if err != nil {
		return nil, err
	}
	if len(chosen) == 0 {
		return nil, failure.Join(a.faults, failure.Configf("see discovery in the configuration", "the configuration has no pipeline now"))
	}
	if len(chosen) > 1 {
		return nil, failure.Configf("choose one with --pipeline, for example --pipeline "+chosen[0].Name,
			"the configuration has several pipelines")
	}
	return chosen[0].Config, nil
}

// each does a verb's work for each pipeline and shows the result; a nil report
// is not shown.
func (a *adminFlags) each(ctx context.Context, p *program, do work) error {
	chosen, err := a.load(p)
	if err != nil {
		return err
	}
	var reports pipelineReports
	var errs []error
	for _, pipeline := range chosen {
		found, err := do(ctx, pipeline.Config)
		if err != nil && pipeline.Name != "" {
			err = fmt.Errorf("pipeline %s: %w", pipeline.Name, err)
		}
		errs = append(errs, err)
		if found != nil {
			command := p.command
			command.Pipeline = pipeline.Name
			reports = append(reports, pipelineReport{found, command})
		}
	}
	errs = append(errs, a.faults)
	switch {
	case len(reports) == 1 && reports[0].command.Pipeline == "":
		errs = append(errs, p.show(reports[0].report, *a.asJSON))
	case len(reports) > 0:
		errs = append(errs, p.show(reports, *a.asJSON))
	}
	return failure.Join(errs...)
}

// pipelineReports are the reports of several pipelines, in the configuration's
// order.
type pipelineReports []pipelineReport

type pipelineReport struct {
	report
	command invocation.Invocation // completes the commands in the report
}

// WriteText implements report, with a heading for each.
func (all pipelineReports) WriteText(w io.Writer) error {
	for i, r := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		var b strings.Builder
		if err := r.WriteText(&b); err != nil {
			return err
		}
		fmt.Fprintf(w, "pipeline %s\n%s", r.command.Pipeline, r.command.In(b.String()))
	}
	return nil
}

// MarshalJSON implements json.Marshaler: an object by name.
func (all pipelineReports) MarshalJSON() ([]byte, error) {
	byName := make(map[string]json.RawMessage, len(all))
	for _, r := range all {
		encoded, err := json.Marshal(r.report)
		if err != nil {
			return nil, err
		}
		byName[r.command.Pipeline] = json.RawMessage(r.command.InJSON(string(encoded)))
	}
	return json.Marshal(map[string]any{"pipelines": byName})
}
