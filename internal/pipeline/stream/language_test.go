package stream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

// Failure mode 4, of a server whose messages are not English.
func TestFastShutdownInAnotherLanguage(t *testing.T) {
	t.Run("German", func(t *testing.T) {
		t.Parallel()
		const german = "de_DE.utf8"
		if installed, err := exec.CommandContext(t.Context(), "locale", "-a").Output(); err != nil || !strings.Contains(string(installed), german) {
			t.Skip("this machine has no locale " + german)
		}
		server := pgtest.Start(t, pgtest.Setting("lc_messages", german))
		d := newDatabase(t, server.NewDatabase(t))
		_, err := d.conn.Exec(t.Context(), "SELECT 1/0")
		if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Message != "Division durch Null" {
			t.Skipf("the server's messages have no translation: %v", err)
		}
		stopWhileStalled(t, server, d)
	})
	t.Run("invented", func(t *testing.T) {
		t.Parallel()
		server := pgtest.Start(t)
		d := newDatabase(t, server.NewDatabase(t))
		u := mustParse(t, d.url)
		u.Host = translated(t, u.Host)
		u.RawQuery = "sslmode=disable"
		d.opts.URL = u.String()
		stopWhileStalled(t, server, d)
	})
}

// stopWhileStalled shuts the server down while nothing can be confirmed.
func stopWhileStalled(t *testing.T, server *pgtest.Server, d *database) {
	t.Helper()
	g := &gate{topic: &topic{}}
	i := d.start(&fakeStore{}, g).streams()
	g.hold()
	ids := d.insert(1, 1)
	g.waits(t)
	server.Stop(t, pgtest.Fast) // it fails if the server waits without end
	server.Resume(t)
	g.open()
	arrive(t, g.topic, 1)
	i.stop()
	wantOnce(t, g.topic, ids)
}

// translated forwards connections to the server at target, whose messages have
// other words, and returns its address.
func translated(t *testing.T, target string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			running.Go(func() { translate(server, client, func(b []byte) []byte { return b }) })
			running.Go(func() { translate(client, server, inOtherWords) })
		}
	})
	return listener.Addr().String()
}

// inOtherWords leaves the length as it is, which is part of the protocol.
func inOtherWords(b []byte) []byte {
	return bytes.ReplaceAll(b, []byte("shutting down"), []byte("no more today"))
}

func translate(to io.WriteCloser, from io.ReadCloser, words func([]byte) []byte) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if _, err := to.Write(words(buf[:n])); err != nil {
			return
		}
	}
}

func TestStopping(t *testing.T) {
	refused := fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	unavailable := catalog.Classify(&pgconn.PgError{Code: "57P03", Message: "das Datenbanksystem fährt herunter"})
	for _, tt := range []struct {
		name       string
		err        error
		terminated bool
		want       bool
	}{
		{"takes no connections", unavailable, false, true},
		{"refused", refused, false, false},
		{"refused after an administrator's command", refused, true, true},
		{"full, after an administrator's command", catalog.Classify(&pgconn.PgError{Code: "53300"}), true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := stopping(tt.err, tt.terminated); errors.Is(got, catalog.ErrShutdown) != tt.want || !errors.Is(got, tt.err) {
				t.Errorf("%v", got)
			}
		})
	}
}
