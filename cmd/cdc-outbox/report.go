package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

// report prints the error that ends the program, for a person: what and why on
// the first line, then how to mend it. It is not logged too, whatever
// log.format says: it is also what Kubernetes shows as a container's
// termination message.
func (p *program) report(ctx context.Context, err error) {
	var b strings.Builder
	if cause, ok := errors.AsType[stopped](context.Cause(ctx)); ok && errors.Is(err, context.Canceled) {
		fmt.Fprintf(&b, "cdc-outbox: %v\n", cause)
	} else {
		fmt.Fprintf(&b, "error: %s\n", p.withFile(err.Error()))
	}
	if remedy := failure.RemedyOf(err); remedy != "" {
		fmt.Fprintf(&b, "remedy: %s\n", p.withFile(remedy))
	}
	// Where stderr is gone there is nobody to tell.
	_, _ = fmt.Fprint(p.stderr, b.String())
}
