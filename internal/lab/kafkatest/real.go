package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
)

// apache is Apache Kafka as a separate process, run by scripts/kafka.sh.
type apache struct {
	script           string
	dir              string
	port, controller int
	settings         []string // key=value
	log              *os.File
	process          *child.Process // nil while stopped
}

func startReal(t testing.TB, o options) (*apache, error) {
	script, err := child.Script("kafka.sh")
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
	return a, a.Resume(context.Background())
}

// Addr implements broker.
func (a *apache) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(a.port)) }

// Stop implements broker.
func (a *apache) Stop(ctx context.Context, sig syscall.Signal) error {
	if a.process == nil {
		return nil
	}
	if err := a.process.Stop(ctx, sig); err != nil {
		return err
	}
	a.process = nil
	return nil
}

// Resume implements broker.
func (a *apache) Resume(context.Context) error {
	args := append([]string{"run", a.dir, strconv.Itoa(a.port), strconv.Itoa(a.controller)}, a.settings...)
	cmd := exec.Command(a.script, args...)
	cmd.Stdout, cmd.Stderr = a.log, a.log
	cmd.Env = append(os.Environ(), versionEnv+"="+version())
	cmd.SysProcAttr = child.Attributes(syscall.SIGKILL)
	p, err := child.Start(cmd)
	if err != nil {
		return err
	}
	a.process = p
	return nil
}

// Ended implements broker.
func (a *apache) Ended(context.Context) error {
	if a.process == nil {
		return nil
	}
	select {
	case <-a.process.Exited():
		text, _ := os.ReadFile(a.log.Name()) // best effort: it only explains
		return fmt.Errorf("%w: %s", await.ErrExited, child.LastLines(string(text)))
	default:
		return nil
	}
}

// Close kills the broker: nobody needs the data any more.
func (a *apache) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	return errors.Join(a.Stop(ctx, syscall.SIGKILL), a.log.Close())
}
