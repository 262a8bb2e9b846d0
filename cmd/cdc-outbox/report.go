package main

import (
	"context"
	"io"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/cli"
)

// report tells the error that ends the program: its cause, then its remedy. It is
// the last line of a log that is JSON, and otherwise two lines for a person. It is
// also what Kubernetes shows as a container's termination message.
func (p *program) report(ctx context.Context, err error) {
	if p.fatal != nil {
		p.fatal.Error("ended by an error", zap.Error(err),
			zap.String("remedy", failure.RemedyOf(err)), zap.Int("exit_code", failure.ClassOf(err).ExitCode()))
		return
	}
	// Where stderr is gone there is nobody to tell.
	_, _ = io.WriteString(p.stderr, cli.Message(ctx, "cdc-outbox", err, p.command))
}
