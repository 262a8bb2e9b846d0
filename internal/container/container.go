// Package container runs one container for a test, with testcontainers-go. No
// other package knows that library.
//
// Invariants:
//
//  1. A container keeps its host port, on the loopback address, over Stop and
//     Resume.
//  2. It is removed by Close or, when the process is killed, by
//     testcontainers' reaper.
//
// Non-goals: networks of containers, engines on other machines.
package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	mobycontainer "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/freeport"
)

// DisableEnv is the environment variable that, set to 0, keeps the tests off
// Docker.
const DisableEnv = "CDC_OUTBOX_TEST_DOCKER"

const (
	pingTimeout = 3 * time.Second
	stopTimeout = 60 * time.Second // until the engine kills what does not stop
)

// Answers reports whether a Docker engine answers and is not to be left alone.
var Answers = sync.OnceValue(func() (ok bool) {
	if os.Getenv(DisableEnv) == "0" {
		return false
	}
	// testcontainers panics where there is no engine.
	defer func() { ok = recover() == nil && ok }()
	provider, err := testcontainers.NewDockerProvider(testcontainers.Generic2DockerOptions(
		testcontainers.WithLogger(log.TestLogger(nil)))...)
	if err != nil {
		return false
	}
	defer provider.Close()
	ctx, cancel := context.WithTimeout(context.Background(), pingTimeout)
	defer cancel()
	return provider.Health(ctx) == nil
})

// Spec says what container to run.
type Spec struct {
	Image string
	// Port is the TCP port in the container, HostPort the one that leads to it: a
	// free one if 0.
	Port, HostPort int
	Env            map[string]string
	// Command replaces the image's entrypoint and command; empty keeps both.
	Command []string
	// Files are copied into the container before its first start, by path.
	Files map[string][]byte
	// Probe returns nil if the server at the address answers. Run and Resume wait
	// for that; without one they do not.
	Probe func(ctx context.Context, addr string) error
}

// Container is a server in a container. Its methods must not be called
// concurrently.
type Container struct {
	inner   *testcontainers.DockerContainer
	addr    string
	probe   func(ctx context.Context, addr string) error
	stopped bool
}

// Run creates and starts a container and waits until its server answers.
func Run(ctx context.Context, s Spec) (*Container, error) {
	port, err := network.ParsePort(strconv.Itoa(s.Port) + "/tcp")
	if err != nil {
		return nil, err
	}
	if s.HostPort == 0 {
		if s.HostPort, err = freeport.Take(); err != nil {
			return nil, err
		}
	}
	host := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	opts := []testcontainers.ContainerCustomizer{
		testcontainers.WithEnv(s.Env),
		testcontainers.WithExposedPorts(port.String()),
		testcontainers.WithHostConfigModifier(func(h *mobycontainer.HostConfig) {
			h.PortBindings = network.PortMap{port: {{HostIP: host, HostPort: strconv.Itoa(s.HostPort)}}}
		}),
	}
	if len(s.Command) > 0 {
		opts = append(opts, testcontainers.WithEntrypoint(s.Command...))
	}
	for path, content := range s.Files {
		opts = append(opts, testcontainers.WithFiles(testcontainers.ContainerFile{
			Reader: bytes.NewReader(content), ContainerFilePath: path, FileMode: 0o644,
		}))
	}
	inner, err := testcontainers.Run(ctx, s.Image, opts...)
	c := &Container{inner: inner, addr: netip.AddrPortFrom(host, uint16(s.HostPort)).String(), probe: s.Probe}
	if err == nil {
		err = c.awaitReady(ctx)
	}
	if err != nil {
		if inner != nil {
			err = errors.Join(err, c.Close())
		}
		return nil, fmt.Errorf("run container %s: %w", s.Image, err)
	}
	return c, nil
}

// Addr returns the server's host and port, on this machine.
func (c *Container) Addr() string { return c.addr }

// Stop sends the signal to the container's first process, and waits until the
// container has stopped. Stopping a stopped container does nothing.
func (c *Container) Stop(ctx context.Context, sig syscall.Signal) error {
	if c.stopped {
		return nil
	}
	// The exec ends with the container: its error says nothing.
	_, _, _ = c.inner.Exec(ctx, []string{"kill", "-" + strconv.Itoa(int(sig)), "1"})
	timeout := stopTimeout
	err := c.inner.Stop(ctx, &timeout)
	c.stopped = err == nil
	return err
}

// Resume starts a stopped container again, at the same address, and waits until
// its server answers.
func (c *Container) Resume(ctx context.Context) error {
	if err := c.inner.Start(ctx); err != nil {
		return err
	}
	c.stopped = false
	return c.awaitReady(ctx)
}

func (c *Container) awaitReady(ctx context.Context) error {
	if c.probe == nil {
		return nil
	}
	return await.Ready(ctx, nil, func(ctx context.Context) error { return c.probe(ctx, c.addr) })
}

// Close removes the container.
func (c *Container) Close() error { return testcontainers.TerminateContainer(c.inner) }

// Goroutines are those that the library leaves running: its connection to the
// reaper.
func Goroutines() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/testcontainers/testcontainers-go.(*Reaper).connect.func1"),
	}
}
