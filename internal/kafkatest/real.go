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
	"github.com/cdc-outbox/cdc-outbox/internal/container"
)

// real is Apache Kafka as a process of its own, run by scripts/kafka.sh.
type real struct {
	script           string
	dir              string
	port, controller int
	settings         []string // key=value
	log              *os.File
	process          *child.Process // nil while stopped
}

func startReal(t testing.TB, o options) (*real, error) {
	script, err := findScript()
	if err != nil {
		return nil, err
	}
	r := &real{script: script, dir: t.TempDir()}
	if r.port, err = container.FreePort(); err != nil {
		return nil, err
	}
	if r.controller, err = container.FreePort(); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(o.settings)) {
		r.settings = append(r.settings, name+"="+o.settings[name])
	}
	if r.log, err = os.Create(filepath.Join(r.dir, "log")); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(r.log.Name())
			t.Logf("Kafka's log:\n%s", text)
		}
	})
	return r, r.resume(context.Background())
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

func (r *real) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

func (r *real) stop(ctx context.Context) error { return r.end(ctx, syscall.SIGTERM) }

func (r *real) end(ctx context.Context, sig syscall.Signal) error {
	if r.process == nil {
		return nil
	}
	if err := r.process.Stop(ctx, sig); err != nil {
		return err
	}
	r.process = nil
	return nil
}

// resume starts the broker; that it answers is awaited elsewhere.
func (r *real) resume(context.Context) error {
	args := append([]string{"run", r.dir, strconv.Itoa(r.port), strconv.Itoa(r.controller)}, r.settings...)
	cmd := exec.Command(r.script, args...)
	cmd.Stdout, cmd.Stderr = r.log, r.log
	cmd.SysProcAttr = child.Attributes(syscall.SIGKILL)
	p, err := child.Start(cmd)
	if err != nil {
		return err
	}
	r.process = p
	return nil
}

// close kills the broker: nobody needs its data any more.
func (r *real) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	return errors.Join(r.end(ctx, syscall.SIGKILL), r.log.Close())
}
