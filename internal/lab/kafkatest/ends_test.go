package kafkatest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// A broker ending during the start, here for want of Java, ends the wait, with the
// last line of the log as the reason.
func TestABrokerThatEndsIsNotWaitedFor(t *testing.T) {
	programs := t.TempDir()
	for _, name := range []string{"basename", "dirname"} {
		must.OK(t, os.Symlink(must.Get(exec.LookPath(name))(t), filepath.Join(programs, name)))
	}
	t.Setenv("PATH", programs)
	a := must.Get(startReal(t, options{}))(t)
	defer func() { must.OK(t, a.Stop(t.Context(), syscall.SIGKILL)) }()
	b := &Broker{Brokers: []string{a.Addr()}, server: a, all: []server{a}}
	err := b.awaitReady(t.Context())
	if !errors.Is(err, await.ErrExited) || !strings.Contains(err.Error(), "java is not installed") {
		t.Errorf("%v, want %v and the reason", err, await.ErrExited)
	}
}
