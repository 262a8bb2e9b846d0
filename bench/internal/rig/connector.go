package rig

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// Connector is cdc-outbox's program.
type Connector struct {
	path string
	dir  string // of our build, if any
}

// releaseTags are the Makefile's.
const releaseTags = "nethttpomithttp2,nopgxregisterdefaulttypes"

// NewConnector is the program of the path or, without a path, a program built from
// this tree as released: a static binary. With the C library, linked by Go in the
// presence of a C compiler, the program has a MiB more in memory. Remove removes
// everything built.
func NewConnector(ctx context.Context, path string) (*Connector, error) {
	if path != "" {
		return &Connector{path: path}, nil
	}
	dir, err := os.MkdirTemp("", "cdc-outbox-bench-")
	if err != nil {
		return nil, err
	}
	c := &Connector{path: filepath.Join(dir, "cdc-outbox"), dir: dir}
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", releaseTags, "-trimpath", "-buildvcs=false", "-o", c.path,
		"github.com/cdc-outbox/cdc-outbox/cmd/cdc-outbox")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		c.Remove()
		return nil, fmt.Errorf("build the connector: %w", err)
	}
	return c, nil
}

// Path is the program's file.
func (c *Connector) Path() string { return c.path }

// Remove removes the program if built for us.
func (c *Connector) Remove() {
	if c.dir != "" {
		_ = os.RemoveAll(c.dir) // a temporary directory
	}
}

// Run starts the connector with settings, each key=value. The connector serves
// no HTTP, and the standard output is dropped.
func (c *Connector) Run(settings ...string) (*Program, error) {
	p, err := c.Start([]string{"run"}, append([]string{"http.listen=", "log.level=warn"}, settings...)...)
	return &Program{p}, err
}

// Start starts a verb of the program, and drops the standard output.
func (c *Connector) Start(verb []string, settings ...string) (*Process, error) {
	cmd := exec.Command(c.path, arguments(verb, settings)...)
	cmd.Stdout = io.Discard // a pipe: run refuses /dev/null
	return Start("cdc-outbox", cmd)
}

func arguments(verb, settings []string) []string {
	args := slices.Clone(verb)
	for _, set := range settings {
		args = append(args, "--set", set)
	}
	return args
}

// Do runs another verb of the program, to the end.
func (c *Connector) Do(ctx context.Context, verb []string, settings ...string) error {
	if out, err := exec.CommandContext(ctx, c.path, arguments(verb, settings)...).CombinedOutput(); err != nil {
		return fmt.Errorf("cdc-outbox %s: %w\n%s", verb[0], err, out)
	}
	return nil
}

// Wiring are the settings for where the connector reads and writes.
func Wiring(url, slot, brokers, topic string) []string {
	return []string{
		"source.url=" + url, "source.slot=" + slot, "source.publication=" + Publication,
		"sink.kafka.brokers=" + brokers, "route.topic=" + topic,
	}
}

// Program is a run of the connector.
type Program struct{ *Process }

// Stop has the program drain, and returns the usage before. A bad end of the program
// is an error.
func (p *Program) Stop() (Usage, error) {
	used, err := p.Usage()
	if err != nil {
		return used, p.Explain(err)
	}
	if err := p.Process.Stop(); err != nil {
		return used, err
	}
	return used, p.Failed()
}
