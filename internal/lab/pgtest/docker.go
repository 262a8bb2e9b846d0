package pgtest

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"io"
	"net/url"
	"os"
	"path"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/container"
)

// port is the server's, in the container.
const port = 5432

// postgresImage is the image of the server in a container.
const postgresImage = "postgres:17.11-bookworm"

// password is the password of a server in a container, listening on loopback. Servers
// with Own have another.
const password = "postgres"

// containerScript makes the data directory like package pgserver and runs
// the server as the container's first process.
//
//go:embed container.sh
var containerScript []byte

// contained is a server in a container.
type contained struct {
	*container.Container
	password string
	name     string // in the network
}

// Paths in the container; the script and the image know them, too.
const (
	dataPath    = "/var/lib/postgresql/data"
	restorePath = "/restore"
	beforePath  = "/before.sh"
)

func startContainer(ctx context.Context, o options) (server, error) {
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
		Image: postgresImage, Port: port, Command: command, Files: files, Network: o.network, Name: o.name,
		Env:   map[string]string{"POSTGRES_PASSWORD": word},
		Probe: func(ctx context.Context, addr string) error { return connect(ctx, urlOf(addr, word, "postgres")) },
	})
	if err != nil {
		return nil, err
	}
	return contained{c, word, o.name}, nil
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

// Peer implements server.
func (c contained) Peer() (string, string) { return c.name, strconv.Itoa(port) }

// Save implements server.
func (c contained) Save(ctx context.Context, to string) error {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	return errors.Join(c.Container.Save(ctx, dataPath, f), f.Close())
}

// Restore implements server; the script does the work.
func (c contained) Restore(ctx context.Context, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	return c.Put(ctx, restorePath, f)
}

// Before implements server.
func (c contained) Before(ctx context.Context, script string) error {
	archive, err := tarOf(path.Base(beforePath), script)
	if err != nil {
		return err
	}
	return c.Put(ctx, path.Dir(beforePath), archive)
}

// tarOf is a tar archive of a single file readable by everybody.
func tarOf(name, content string) (*bytes.Buffer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))})
	if err == nil {
		_, err = io.WriteString(w, content)
	}
	return &b, errors.Join(err, w.Close())
}

// Has implements server: the image has all of them.
func (c contained) Has(string) bool { return true }
