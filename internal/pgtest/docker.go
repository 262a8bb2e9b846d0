package pgtest

import (
	"context"
	_ "embed"
	"net"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/container"
	"github.com/cdc-outbox/cdc-outbox/internal/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/pgserver"
)

// postgresImage is the image of the server in a container.
const postgresImage = "postgres:17.11-bookworm"

// password is that of the server in a container, which listens on loopback.
const password = "postgres"

// containerScript makes the data directory as package pgserver does and runs
// the server as the container's first process.
//
//go:embed container.sh
var containerScript []byte

// useDocker reports whether to run the server in a container: where that is
// possible and no local binaries are asked for.
func useDocker() bool { return os.Getenv(pgserver.BinEnv) == "" && container.Answers() }

// contained is a server in a container.
type contained struct {
	port      int
	container *container.Container
	stopped   bool
}

func startContainer(ctx context.Context, o pgserver.Options) (server, error) {
	port, err := freeport.Take()
	if err != nil {
		return nil, err
	}
	command := []string{"sh", "/container.sh", "-c", "listen_addresses=*"}
	for name, value := range o.AllSettings() {
		command = append(command, "-c", name+"="+value)
	}
	files := map[string][]byte{"/container.sh": containerScript}
	for name, content := range o.Files {
		files["/files/"+name] = content
	}
	c := &contained{port: port}
	c.container, err = container.Run(ctx, container.Spec{
		Image: postgresImage, Port: 5432, HostPort: port, Command: command, Files: files,
		Env: map[string]string{"POSTGRES_PASSWORD": password},
	})
	if err != nil {
		return nil, err
	}
	return c, c.awaitReady(ctx)
}

// URL implements server.
func (c *contained) URL(database string) string {
	u := url.URL{
		Scheme: "postgres",
		User:   url.UserPassword("postgres", password),
		Host:   net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)),
		Path:   "/" + database,
	}
	return u.String()
}

// Stop implements server. (Signals: PostgreSQL documentation, "Shutting Down
// the Server".)
func (c *contained) Stop(ctx context.Context, mode Mode) error {
	if c.stopped {
		return nil
	}
	signal := "INT"
	if mode == Immediate {
		signal = "QUIT"
	}
	err := c.container.Stop(ctx, signal)
	c.stopped = err == nil
	return err
}

// Resume implements server.
func (c *contained) Resume(ctx context.Context) error {
	if err := c.container.Start(ctx); err != nil {
		return err
	}
	c.stopped = false
	return c.awaitReady(ctx)
}

// Close implements server.
func (c *contained) Close() error { return c.container.Close() }

// awaitReady returns once the server accepts connections.
func (c *contained) awaitReady(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgconn.Connect(ctx, c.URL("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}
