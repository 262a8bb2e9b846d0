package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// report tells the error that ends the program: what and why, then how to fix
// it. It is the last line of a log that is JSON, and otherwise two lines for a
// person. It is also what Kubernetes shows as a container's termination message.
func (p *program) report(ctx context.Context, err error) {
	if p.fatal != nil {
		p.fatal.Error("ended by an error", zap.Error(err),
			zap.String("remedy", failure.RemedyOf(err)), zap.Int("exit_code", failure.ClassOf(err).ExitCode()))
		return
	}
	var b strings.Builder
	if cause, ok := errors.AsType[stopped](context.Cause(ctx)); ok && errors.Is(err, context.Canceled) {
		fmt.Fprintf(&b, "cdc-outbox: %v\n", cause)
	} else {
		fmt.Fprintf(&b, "error: %s\n", indented(p.command.In(err.Error())))
	}
	if remedy := failure.RemedyOf(err); remedy != "" {
		fmt.Fprintf(&b, "remedy: %s\n", indented(p.command.In(remedy)))
	}
	// Where stderr is gone there is nobody to tell.
	_, _ = fmt.Fprint(p.stderr, b.String())
}

// indented returns the text with its further lines indented: a line break in it may
// come from a name or a value, and what is behind that is nothing that we say.
func indented(text string) string {
	first, more, found := strings.Cut(text, "\n")
	if !found {
		return text
	}
	lines := strings.Split(more, "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, " ") {
			lines[i] = "  " + line
		}
	}
	return first + "\n" + strings.Join(lines, "\n")
}
