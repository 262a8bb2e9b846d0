package redisserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/cachedir"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
)

// unpackedRoot is the directory that packages are unpacked into, as if it were
// the root of the file system.
func unpackedRoot() (string, error) {
	cache, err := cachedir.Path()
	return filepath.Join(cache, "redis-server"), err
}

// unpackPackages downloads Debian's package of a server with the libraries
// missing here, and unpacks them into unpackedRoot, all or none. Installing it
// would start a server on port 6379.
func unpackPackages(ctx context.Context, progress io.Writer) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return err
	}
	names, err := missingPackages(ctx, progress)
	if err != nil {
		return err
	}
	root, err := unpackedRoot()
	if err != nil {
		return err
	}
	fmt.Fprintf(progress, "Redis is not installed: unpacking Debian's packages %s into %s\n", strings.Join(names, ", "), root)
	work, err := os.MkdirTemp(filepath.Dir(root), "unpack-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if _, err := child.Output(ctx, work, "apt-get", append([]string{"download", "--quiet"}, names...)...); err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil {
		return err
	}
	for _, archive := range archives {
		if _, err := child.Output(ctx, work, "dpkg-deb", "--extract", archive, "root"); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(work, "root"), 0o755); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(root), os.Rename(filepath.Join(work, "root"), root))
}

// installLine matches what apt-get says it would install, e.g.
// "Inst redis-server (5:7.0.15-1~deb12u10 Debian:12/oldstable [amd64])".
var installLine = regexp.MustCompile(`(?m)^Inst (\S+)`)

// missingPackages returns the packages that installing a server would add. Root
// may fetch the lists of packages first.
func missingPackages(ctx context.Context, progress io.Writer) ([]string, error) {
	if os.Geteuid() == 0 {
		fmt.Fprintln(progress, "Redis is not installed: asking apt-get for it")
		if _, err := child.Output(ctx, "", "apt-get", "update", "--quiet"); err != nil {
			return nil, err
		}
	}
	var errs []error
	for _, program := range programs { // Debian's packages are called like the programs
		out, err := child.Output(ctx, "", "apt-get", "install", "--simulate", "--no-install-recommends", program)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		var names []string
		for _, m := range installLine.FindAllStringSubmatch(out, -1) {
			names = append(names, m[1])
		}
		if len(names) > 0 {
			return names, nil
		}
		errs = append(errs, fmt.Errorf("package %s is installed, without a program in PATH", program))
	}
	return nil, errors.Join(errs...)
}

// libraryPath is what the dynamic linker needs to be told for an unpacked
// program; empty for others.
func libraryPath(program string) string {
	root, err := unpackedRoot()
	if err != nil || !strings.HasPrefix(program, root+string(filepath.Separator)) {
		return ""
	}
	dirs, err := filepath.Glob(filepath.Join(root, "usr", "lib", "*-linux-gnu*"))
	if err != nil {
		return ""
	}
	return strings.Join(dirs, ":")
}
