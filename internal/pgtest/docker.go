package pgtest

import (
	"context"
	"crypto/rand"
	_ "embed"
	"net/url"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/container"
	"github.com/cdc-outbox/cdc-outbox/internal/pgserver"
)

// postgresImage is the image of the server in a container.
const postgresImage = "postgres:17.11-bookworm"

// password is that of a server in a container, which listens on loopback, unless it has
// its own.
const password = "postgres"

// containerScript makes the data directory as package pgserver does and runs
// the server as the container's first process.
//
//go:embed container.sh
var containerScript []byte

// contained is a server in a container.
type contained struct {
	*container.Container
	password string
}

func startContainer(ctx context.Context, o pgserver.Options) (server, error) {
	command := []string{"sh", "/container.sh", "-c", "listen_addresses=*"}
	for name, value := range o.AllSettings() {
		command = append(command, "-c", name+"="+value)
	}
	files := map[string][]byte{"/container.sh": containerScript}
	for name, content := range o.Files {
		files["/files/"+name] = content
	}
	word := password
	if o.Own {
		word = rand.Text()
	}
	c, err := container.Run(ctx, container.Spec{
		Image: postgresImage, Port: 5432, Command: command, Files: files,
		Env:   map[string]string{"POSTGRES_PASSWORD": word},
		Probe: func(ctx context.Context, addr string) error { return connect(ctx, urlOf(addr, word, "postgres")) },
	})
	if err != nil {
		return nil, err
	}
	return contained{c, word}, nil
}

// connect tells whether the server accepts connections.
func connect(ctx context.Context, url string) error {
	conn, err := pgconn.Connect(ctx, url)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

func urlOf(addr, password, database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword("postgres", password), Host: addr, Path: "/" + database}
	return u.String()
}

// URL implements server.
func (c contained) URL(database string) string { return urlOf(c.Addr(), c.password, database) }

// Stop implements server.
func (c contained) Stop(ctx context.Context, mode Mode) error {
	return c.Container.Stop(ctx, mode.Signal())
}
