package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// Env is the environment variable that, set to 0, keeps the tests off Docker, and, set to
// 1, has them fail without an engine.
const Env = "CDC_OUTBOX_TEST_DOCKER"

// askTimeout bounds the question to an engine.
const askTimeout = 10 * time.Second

// Answers reports whether there is a Docker engine that answers, and that tests
// may use. An error tells of an engine not answering: tests must not take other
// servers instead without a word.
var Answers = sync.OnceValues(func() (bool, error) {
	wanted := os.Getenv(Env)
	if wanted == "0" {
		return false, nil
	}
	ok, err := answers(context.Background(), hosts(os.Stderr))
	if !ok && err == nil && wanted == "1" {
		err = fmt.Errorf("there is no Docker engine, and %s is 1", Env)
	}
	return ok, err
})

// Chosen is the rule by which tests take a server. The environment variable
// naming a directory of programs of this machine comes first, then an engine
// that answers, then the programs that are found or fetched. Chosen reports
// whether the server is to be in a container. binEnv is "" where there is no
// such variable.
func Chosen(binEnv string) (bool, error) {
	if binEnv != "" && os.Getenv(binEnv) != "" {
		return false, nil
	}
	return Answers()
}

// answers asks the engines at the addresses.
func answers(ctx context.Context, hosts []string) (bool, error) {
	var errs []error
	for _, host := range hosts {
		err := ask(ctx, host)
		if err == nil {
			return true, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", host, err))
	}
	if len(errs) == 0 {
		return false, nil
	}
	return false, fmt.Errorf("a Docker engine is set up, but does not answer; start it, or set %s=0 for tests without it: %w", Env, errors.Join(errs...))
}

// ask asks the engine about itself.
func ask(ctx context.Context, host string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	engine, err := client.New(client.FromEnv, client.WithHost(host))
	if err != nil {
		return err
	}
	defer engine.Close()
	_, err = engine.Info(ctx, client.InfoOptions{})
	return err
}

// hosts are the addresses at which testcontainers looks for an engine: those
// configured, and the usual sockets that exist. A usual socket this user may
// not use is no engine of the user's; w is told of it.
func hosts(w io.Writer) (found []string) {
	properties := testcontainers.ReadConfig().Config
	for _, configured := range []string{properties.TestcontainersHost, os.Getenv("DOCKER_HOST"), properties.Host} {
		if configured != "" {
			found = append(found, configured)
		}
	}
	for _, path := range usualSockets() {
		if _, err := os.Stat(path); err != nil {
			continue
		}
		conn, err := net.Dial("unix", path)
		if errors.Is(err, fs.ErrPermission) {
			fmt.Fprintf(w, "the Docker engine at %s is not used: %v\n", path, err)
			continue
		}
		if err == nil {
			conn.Close()
		}
		found = append(found, "unix://"+path)
	}
	return found
}

// usualSockets are those of an engine for all users, and of one for this user
// (testcontainers' docker_rootless.go).
func usualSockets() []string {
	paths := []string{"/var/run/docker.sock"}
	if dir := strings.TrimSpace(os.Getenv("XDG_RUNTIME_DIR")); dir != "" {
		paths = append(paths, filepath.Join(dir, "docker.sock"))
	}
	if home, err := os.UserHomeDir(); err == nil {
		paths = append(paths, filepath.Join(home, ".docker", "run", "docker.sock"), filepath.Join(home, ".docker", "desktop", "docker.sock"))
	}
	return append(paths, filepath.Join("/run/user", strconv.Itoa(os.Getuid()), "docker.sock"))
}
