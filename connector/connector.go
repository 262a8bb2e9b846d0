// Package connector runs the connector within another program: the same as the
// program cdc-outbox does for the verb run.
//
// A program can have several connectors, each with slots, checkpoint keys and an
// HTTP address of its own. The outbox table, publication and slot come from
// cdc-outbox setup, or from source.create.
//
// The API is this package. The packages below it (sink, transform, wal, checkpoint)
// have internal types in their signatures and may change with any release.
//
// Non-goals: signals, and the limits that the program sets for its heap (GOGC,
// GOMEMLIMIT): those are the embedding program's.
package connector

import (
	"cmp"
	"context"
	"io"
	"os"
	"runtime/debug"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
)

// Config is a connector's configuration. At least source.url has no default.
type Config struct {
	// YAML is the content of a configuration file. Optional.
	YAML []byte
	// Environ are variables as os.Environ returns them, for ${VAR} in YAML and for
	// CDC_OUTBOX_… in place of keys. Optional.
	Environ []string
	// Set are values KEY=VALUE, such as source.url=postgres://…, before all others.
	// Optional.
	Set []string
	// Log is where the log goes, os.Stderr by default; the section log of YAML says how.
	Log io.Writer
	// Stdout is where sink.stdout writes, os.Stdout by default.
	Stdout io.Writer
}

// Run checks the configuration, and reads and publishes until ctx ends. Then it drains
// events in flight and returns nil. It returns earlier with an error that ExitCode
// tells apart. Its goroutines have ended when it returns.
func Run(ctx context.Context, c Config) error {
	cfg, err := config.Load(config.Options{File: "YAML", Text: append([]byte{}, c.YAML...), Environ: c.Environ, Set: c.Set})
	if err != nil {
		return err
	}
	log, err := wiring.NewLogger(cfg.Log, cmp.Or[io.Writer](c.Log, os.Stderr))
	if err != nil {
		return err
	}
	return pipeline.Run(ctx, pipeline.Options{Config: cfg, Log: log, Stdout: cmp.Or[io.Writer](c.Stdout, os.Stdout), Version: version()})
}

// ExitCode is the exit code of the program cdc-outbox for an error of Run: 1 for an
// error that may pass, so that Run can be called again, 2 for a configuration, table or
// right that cannot work, 3 if events may have been lost. For nil it is 0.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	return failure.ClassOf(err).ExitCode()
}

// Remedy returns a sentence about the repair of an error of Run, or "".
func Remedy(err error) string { return failure.RemedyOf(err) }

// module is the path of the module in a build.
const module = "github.com/cdc-outbox/cdc-outbox"

// version is that of this module in the embedding program.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == module {
				return dep.Version
			}
		}
	}
	return "(devel)"
}
