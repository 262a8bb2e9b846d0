// Package container runs one container for a test, with testcontainers-go. No
// other package knows that library.
//
// Invariants:
//
//  1. A container keeps the host port, on the loopback address, over Stop and
//     Resume.
//  2. It is removed by Close or, when the process is killed, by
//     testcontainers' reaper.
//
// Non-goals: engines on other machines.
package container

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	mobycontainer "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
)

// stopTimeout is how long a container may take to end after a signal.
const stopTimeout = 60 * time.Second

// Spec says what container to run.
type Spec struct {
	Image string
	// Port is the TCP port in the container, HostPort the one leading to it: a
	// free one if 0.
	Port, HostPort int
	Env            map[string]string
	// Command replaces the image's entrypoint and command; empty keeps both.
	Command []string
	// Files are copied into the container before the first start, by path.
	Files map[string][]byte
	// Network has the container in it, where others reach it at Port under the name.
	// Optional.
	Network *Network
	Name    string
	// Probe returns nil if the server at the address answers. Run and Resume wait
	// for that; without one they do not.
	Probe func(ctx context.Context, addr string) error
}

// Container is a server in a container. The methods must not be called
// concurrently.
type Container struct {
	inner   *testcontainers.DockerContainer
	addr    string
	probe   func(ctx context.Context, addr string) error
	stopped bool
}

// Run creates and starts a container and waits until the server answers.
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
		s.Network.join(s.Name),
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
// container has stopped. The engine sends it: the kernel keeps signals a
// process sends within the container, SIGKILL too, from a first process without
// a handler (pid_namespaces(7)). Stopping a stopped container does nothing.
func (c *Container) Stop(ctx context.Context, sig syscall.Signal) error {
	if c.stopped {
		return nil
	}
	err := withEngine(ctx, func(ctx context.Context, engine client.APIClient) error {
		return kill(ctx, engine, c.inner.GetContainerID(), sig)
	})
	c.stopped = err == nil
	return err
}

// kill sends a signal and waits for the container's end.
func kill(ctx context.Context, engine client.APIClient, id string, sig syscall.Signal) error {
	if _, err := engine.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: strconv.Itoa(int(sig))}); err != nil {
		return err
	}
	ended := engine.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: mobycontainer.WaitConditionNotRunning})
	select {
	case err := <-ended.Error:
		return err
	case <-ended.Result:
		return nil
	}
}

// Pause stops all processes of the container as they stand; clients see silence.
func (c *Container) Pause() error {
	return withEngine(context.Background(), func(ctx context.Context, engine client.APIClient) error {
		_, err := engine.ContainerPause(ctx, c.inner.GetContainerID(), client.ContainerPauseOptions{})
		return err
	})
}

// Continue ends a Pause.
func (c *Container) Continue() error {
	return withEngine(context.Background(), func(ctx context.Context, engine client.APIClient) error {
		_, err := engine.ContainerUnpause(ctx, c.inner.GetContainerID(), client.ContainerUnpauseOptions{})
		return err
	})
}

// withEngine calls f with a client of the engine that testcontainers uses.
func withEngine(ctx context.Context, f func(context.Context, client.APIClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	engine, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return err
	}
	defer engine.Close()
	return f(ctx, engine)
}

// Resume starts a stopped container again, at the same address, and waits until
// the server answers.
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
	return await.Ready(ctx, nil, func(ctx context.Context) error {
		err := c.probe(ctx, c.addr)
		if err == nil {
			return nil
		}
		return cmp.Or(c.Ended(ctx), err)
	})
}

// Ended returns await.ErrExited, with the end of what the container's processes wrote,
// once they have ended by themselves.
func (c *Container) Ended(ctx context.Context) error {
	state, err := c.inner.State(ctx)
	if err != nil || state.Running {
		return err
	}
	return fmt.Errorf("%w with code %d: %s", await.ErrExited, state.ExitCode, c.lastWords(ctx))
}

// lastWords are the end of what the container's processes wrote, or why it is not known.
func (c *Container) lastWords(ctx context.Context) string {
	logs, err := c.inner.Logs(ctx)
	if err != nil {
		return err.Error()
	}
	defer logs.Close()
	text, err := io.ReadAll(logs)
	if err != nil {
		return err.Error()
	}
	return child.LastLines(string(text))
}

// Close removes the container.
func (c *Container) Close() error { return testcontainers.TerminateContainer(c.inner) }

// Goroutines are those the library leaves running: the connection to the
// reaper.
func Goroutines() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/testcontainers/testcontainers-go.(*Reaper).connect.func1"),
	}
}
