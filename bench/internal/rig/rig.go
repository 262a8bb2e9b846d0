// Package rig has what the benchmarks of the whole program share: the program,
// and a broker in a process of its own, so that the program's processor time and
// memory are its own.
//
// Non-goals: measuring.
package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build builds the connector from this tree into the directory and returns its
// path.
func Build(ctx context.Context, dir string) (string, error) {
	out := filepath.Join(dir, "cdc-outbox")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", out, "github.com/cdc-outbox/cdc-outbox/cmd/cdc-outbox")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build the connector: %w", err)
	}
	return out, nil
}
