package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
)

// noMainCluster is a drop-in of postgresql-common's pg_createcluster(1), so the
// package's installation neither creates nor starts a server.
const noMainCluster = "/etc/postgresql-common/createcluster.d/cdc-outbox.conf"

// canInstallPackages reports whether we may use Debian's package manager.
func canInstallPackages() bool {
	_, err := exec.LookPath("apt-get")
	return err == nil && os.Geteuid() == 0
}

// installPackages installs Debian's package postgresql without the usual server on
// port 5432.
func installPackages(ctx context.Context, progress io.Writer) (err error) {
	fmt.Fprintln(progress, "PostgreSQL is not installed: installing Debian's package postgresql with apt-get (no server of its own is started)")
	if err := apt(ctx, "update", "--quiet"); err != nil {
		return err
	}
	if err := apt(ctx, "install", "--yes", "--quiet", "--no-install-recommends", "postgresql-common"); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(noMainCluster), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(noMainCluster, []byte("create_main_cluster = false\n"), 0o644); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, os.Remove(noMainCluster))
		_ = os.Remove(filepath.Dir(noMainCluster)) // unless others use the directory
	}()
	return apt(ctx, "install", "--yes", "--quiet", "--no-install-recommends", "postgresql")
}

// apt runs apt-get, repeats a failed download, and waits for another apt-get at work.
func apt(ctx context.Context, args ...string) error {
	_, err := child.Output(ctx, "", "apt-get", append([]string{"--option=Acquire::Retries=3", "--option=DPkg::Lock::Timeout=120"}, args...)...)
	return err
}
