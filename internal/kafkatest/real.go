package kafkatest

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/child"
	"github.com/cdc-outbox/cdc-outbox/internal/freeport"
)

// apache is Apache Kafka as a process of its own, run by scripts/kafka.sh.
type apache struct {
	script           string
	dir              string
	port, controller int
	settings         []string // key=value
	log              *os.File
	process          *child.Process // nil while stopped
}

func startReal(t testing.TB, o options) (*apache, error) {
	script, err := findScript()
	if err != nil {
		return nil, err
	}
	a := &apache{script: script, dir: t.TempDir()}
	if a.port, err = freeport.Take(); err != nil {
		return nil, err
	}
	if a.controller, err = freeport.Take(); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(o.settings)) {
		a.settings = append(a.settings, name+"="+o.settings[name])
	}
	if a.log, err = os.Create(filepath.Join(a.dir, "log")); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(a.log.Name())
			t.Logf("Kafka's log:\n%s", text)
		}
	})
	return a, a.resume(context.Background())
}

// findScript looks for scripts/kafka.sh in the module's root, above the
// directory of the package under test.
func findScript() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		path := filepath.Join(dir, "scripts", "kafka.sh")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("scripts/kafka.sh is in no directory above the test")
		}
		dir = parent
	}
}

func (a *apache) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(a.port)) }

func (a *apache) stop(ctx context.Context) error { return a.end(ctx, syscall.SIGTERM) }

func (a *apache) end(ctx context.Context, sig syscall.Signal) error {
	if a.process == nil {
		return nil
	}
	if err := a.process.Stop(ctx, sig); err != nil {
		return err
	}
	a.process = nil
	return nil
}

// resume starts the broker; that it answers is awaited elsewhere.
func (a *apache) resume(context.Context) error {
	args := append([]string{"run", a.dir, strconv.Itoa(a.port), strconv.Itoa(a.controller)}, a.settings...)
	cmd := exec.Command(a.script, args...)
	cmd.Stdout, cmd.Stderr = a.log, a.log
	cmd.SysProcAttr = child.Attributes(syscall.SIGKILL)
	p, err := child.Start(cmd)
	if err != nil {
		return err
	}
	a.process = p
	return nil
}

// close kills the broker: nobody needs its data any more.
func (a *apache) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	return errors.Join(a.end(ctx, syscall.SIGKILL), a.log.Close())
}
