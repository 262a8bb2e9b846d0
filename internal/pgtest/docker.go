package pgtest

import (
	"context"
	_ "embed"
	"net/url"
	"os"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/container"
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
type contained struct{ *container.Container }

func startContainer(ctx context.Context, o pgserver.Options) (server, error) {
	command := []string{"sh", "/container.sh", "-c", "listen_addresses=*"}
	for name, value := range o.AllSettings() {
		command = append(command, "-c", name+"="+value)
	}
	files := map[string][]byte{"/container.sh": containerScript}
	for name, content := range o.Files {
		files["/files/"+name] = content
	}
	c, err := container.Run(ctx, container.Spec{
		Image: postgresImage, Port: 5432, Command: command, Files: files,
		Env:   map[string]string{"POSTGRES_PASSWORD": password},
		Probe: connect,
	})
	if err != nil {
		return nil, err
	}
	return contained{c}, nil
}

// connect tells whether the server accepts connections.
func connect(ctx context.Context, addr string) error {
	conn, err := pgconn.Connect(ctx, urlOf(addr, "postgres"))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

func urlOf(addr, database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword("postgres", password), Host: addr, Path: "/" + database}
	return u.String()
}

// URL implements server.
func (c contained) URL(database string) string { return urlOf(c.Addr(), database) }

// Stop implements server.
func (c contained) Stop(ctx context.Context, mode Mode) error {
	return c.Container.Stop(ctx, mode.Signal())
}
