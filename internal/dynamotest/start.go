package dynamotest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/child"
	"github.com/cdc-outbox/cdc-outbox/internal/container"
)

// image is Amazon's own; the version is that of scripts/dynamodb.sh.
const (
	image     = "amazon/dynamodb-local:2.6.1"
	imagePort = 8000
)

const pollInterval = 20 * time.Millisecond

// running is a server in whatever form.
type running struct {
	address string
	close   func() error
	// exited is closed when the server is gone; nil if that cannot be told.
	exited <-chan struct{}
	log    func() string
}

// start starts a server and waits until it answers.
func start() (*running, error) {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	port, err := container.FreePort()
	if err != nil {
		return nil, err
	}
	run := startJars
	if container.Answers() {
		run = startContainer
	}
	r, err := run(ctx, port)
	if err != nil {
		return nil, err
	}
	r.address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	ctx, cancel = context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	if err := r.awaitReady(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s", err, r.log()), r.close())
	}
	return r, nil
}

func startContainer(ctx context.Context, port int) (*running, error) {
	c, err := container.Run(ctx, container.Spec{Image: image, Port: imagePort, HostPort: port})
	if err != nil {
		return nil, err
	}
	return &running{close: c.Close, log: func() string { return "see the container's log" }}, nil
}

// startJars runs scripts/dynamodb.sh.
func startJars(ctx context.Context, port int) (*running, error) {
	script, err := findScript()
	if err != nil {
		return nil, err
	}
	// Nothing but what it takes is missing when this fails.
	if out, err := exec.CommandContext(ctx, script, "fetch").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %w: %s", errNotToBeHad, err, strings.TrimSpace(string(out)))
	}
	log, err := os.CreateTemp("", "cdc-outbox-dynamodb-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own descriptor
	cmd := exec.Command(script, "run", strconv.Itoa(port))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = child.Attributes(syscall.SIGKILL)
	p, err := child.Start(cmd)
	if err != nil {
		return nil, errors.Join(err, os.Remove(log.Name()))
	}
	return &running{
		exited: p.Exited(),
		log: func() string {
			text, _ := os.ReadFile(log.Name()) // best effort: it only explains
			return string(bytes.TrimSpace(text))
		},
		close: func() error {
			ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
			defer cancel()
			return errors.Join(p.Stop(ctx, syscall.SIGKILL), os.Remove(log.Name()))
		},
	}, nil
}

// findScript looks for scripts/dynamodb.sh in the module's root, above the
// directory of the package under test.
func findScript() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		path := filepath.Join(dir, "scripts", "dynamodb.sh")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("scripts/dynamodb.sh is in no directory above the test")
		}
		dir = parent
	}
}

// awaitReady returns once the server answers, be it to refuse: an unsigned
// request is all it takes.
func (r *running) awaitReady(ctx context.Context) error {
	transport := newTransport()
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := ping(ctx, client, "http://"+r.address)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-r.exited:
			return errors.New("it exited while starting")
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w", err)
		}
	}
}

func ping(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
