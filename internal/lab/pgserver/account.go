package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
)

// account is the system user the server runs as.
type account struct {
	uid, gid int
	drop     bool // we are another user, root
}

// serverAccount returns our own account or, for root, an account accepted by
// PostgreSQL.
func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	var errs []error
	for _, name := range []string{"postgres", "nobody"} {
		a, err := lookUpAccount(name)
		if err == nil {
			return a, nil
		}
		errs = append(errs, err)
	}
	return account{}, failure.Configf("run as an ordinary user, or add a system user postgres",
		"PostgreSQL does not run as root: %w", errors.Join(errs...))
}

func lookUpAccount(name string) (account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return account{}, err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return account{}, fmt.Errorf("user %s: %w", name, err)
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return account{}, fmt.Errorf("user %s: %w", name, err)
	}
	return account{uid: uid, gid: gid, drop: true}, nil
}

// command returns a command running as the account, in dir, without the environment
// variables of libpq and the server.
func (a account) command(ctx context.Context, dir, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C"}
	if v, ok := os.LookupEnv("LD_LIBRARY_PATH"); ok {
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+v)
	}
	cmd.SysProcAttr = child.Attributes(syscall.SIGQUIT) // an immediate shutdown
	if a.drop {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return cmd
}

// own gives the file to the account.
func (a account) own(path string) error {
	if !a.drop {
		return nil
	}
	return os.Chown(path, a.uid, a.gid)
}

// write creates a file only the account, and root, can read.
func (a account) write(path string, content []byte) error {
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return err
	}
	return a.own(path)
}
