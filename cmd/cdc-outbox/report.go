package main

import (
	"context"
	"io"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/cli"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// report tells the error ending the program: the cause, then the remedy. It is
// the last line of a log in JSON, and otherwise two lines for a person.
// Kubernetes shows it as a container's termination message.
func (p *program) report(ctx context.Context, err error) {
	if p.fatal != nil {
		p.fatal.Error(ending(err), zap.Error(err),
			zap.String("remedy", failure.RemedyOf(err)), zap.Int("exit_code", failure.ClassOf(err).ExitCode()))
		return
	}
	// Where stderr is gone there is nobody to tell.
	_, _ = io.WriteString(p.stderr, cli.Message(ctx, "cdc-outbox", err, p.command.In))
}

// ending explains the end of run: the fate of events, and whether to restart.
func ending(err error) string {
	switch failure.ClassOf(err) {
	case failure.Loss:
		return "ended, as events may be lost: nothing is published, and a restart ends the same, until a person decides"
	case failure.Config:
		const corrected = "ended by what does not pass by itself: nothing is published until it is corrected"
		if checkpoint.LacksLog(err) { // no slot has them
			return corrected
		}
		return corrected + "; PostgreSQL keeps the events while there is a slot (in poll mode, in the table)"
	}
	return "ended by an error that may pass: start it again"
}
