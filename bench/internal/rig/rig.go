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

// Connector returns the path of the connector's program and what removes it
// again: the given one or, where that is empty, one built from this tree.
func Connector(ctx context.Context, given string) (path string, remove func(), err error) {
	if given != "" {
		return given, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "cdc-outbox-bench-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) } // a temporary directory
	path = filepath.Join(dir, "cdc-outbox")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", path, "github.com/cdc-outbox/cdc-outbox/cmd/cdc-outbox")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		remove()
		return "", nil, fmt.Errorf("build the connector: %w", err)
	}
	return path, remove, nil
}
