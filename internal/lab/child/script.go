package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ErrNotInstalled is the error of a script without a program that it needs, such as Java.
var ErrNotInstalled = errors.New("a program is not installed")

// notInstalled is the scripts' exit code for that: need, in scripts/jars.sh.
const notInstalled = 3

// Fetch has a script get the jars of its server, once, and returns their directory. An error
// has the script's words.
func Fetch(ctx context.Context, script string) (dir string, err error) {
	cmd := exec.CommandContext(ctx, script, "fetch")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == notInstalled {
		err = ErrNotInstalled
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// Script returns the path of one of the module's scripts: that of the name in
// the directory scripts in, or above, the working directory.
func Script(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		path := filepath.Join(dir, "scripts", name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("scripts/%s is in no directory above this one: run this within the repository", name)
		}
		dir = parent
	}
}
