package pgserver

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
)

// parentEnv makes the test binary a program: start a server, print the server's URL and
// directory, and wait to be killed.
const parentEnv = "CDC_OUTBOX_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) != "" {
		actAsParent()
	}
	goleak.VerifyTestMain(m)
}

func actAsParent() {
	s, err := Start(context.Background(), Options{})
	if err != nil {
		_, _ = io.WriteString(os.Stderr, err.Error()+"\n")
		os.Exit(1)
	}
	_, _ = io.WriteString(os.Stdout, s.URL("postgres")+"\n"+s.dir.path+"\n")
	select {}
}

// start starts a server closed when the test ends.
func start(t *testing.T, o Options) *Server {
	t.Helper()
	bin, err := Ensure(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	o.BinDir = bin
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// connects reports whether the server at url lets us in.
func connects(t *testing.T, url string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := pgconn.Connect(ctx, url)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

func TestServerAnswersOnLoopbackAndSocket(t *testing.T) {
	s := start(t, Options{})
	for _, url := range []string{s.URL("postgres"), s.SocketURL("postgres")} {
		if err := connects(t, url); err != nil {
			t.Error(err)
		}
	}
}

func TestServerAsksForItsPassword(t *testing.T) {
	s := start(t, Options{})
	wrong := strings.Replace(s.URL("postgres"), s.password, "guess", 1)
	var refused *pgconn.PgError
	if err := connects(t, wrong); !errors.As(err, &refused) || refused.Code != "28P01" {
		t.Errorf("error = %v, want 28P01 (invalid password)", err)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	s := start(t, Options{})
	for range 2 { // the second time does nothing
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(s.dir.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory: %v, want it gone", err)
	}
	if err := connects(t, s.URL("postgres")); err == nil {
		t.Error("the server still answers")
	}
}

func TestStartSaysWhyTheServerRefuses(t *testing.T) {
	bin, err := Ensure(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), Options{BinDir: bin, Settings: map[string]string{"wal_level": "nonsense"}})
	if err == nil || !strings.Contains(err.Error(), `invalid value for parameter "wal_level"`) {
		t.Errorf("error = %v, want the server's own words", err)
	}
}

func TestResumeSaysThatThePortIsTaken(t *testing.T) {
	s := start(t, Options{})
	if err := s.Stop(t.Context(), Fast); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", addressOf(t, s))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Resume(t.Context()); !errors.Is(err, child.ErrPortTaken) {
		t.Errorf("error = %v, want %v", err, child.ErrPortTaken)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Resume(t.Context()); err != nil {
		t.Errorf("after the port was free again: %v", err)
	}
}

func addressOf(t *testing.T, s *Server) string {
	t.Helper()
	c, err := pgconn.ParseConfig(s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	_, address := pgconn.NetworkAddress(c.Host, c.Port)
	return address
}

func TestKilledOwnerLeavesNothing(t *testing.T) {
	ownTemp(t)
	if _, err := Ensure(t.Context(), os.Stderr); err != nil {
		t.Fatal(err)
	}
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), parentEnv+"=1")
	owner.Stderr = os.Stderr
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan()
	url := lines.Text()
	lines.Scan()
	dir := lines.Text()
	if err := connects(t, url); err != nil {
		t.Fatal(err)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // killed

	await.Until(t, "the server is gone", func() bool { return connects(t, url) != nil })
	// The next server to be started clears the directory away; a server still
	// ending may write into it meanwhile.
	await.Until(t, "the directory is gone", func() bool {
		removeAbandoned(filepath.Dir(dir))
		_, err := os.Stat(dir)
		return errors.Is(err, os.ErrNotExist)
	})
}

func TestDirectoryInUseIsNotAbandoned(t *testing.T) {
	ownTemp(t)
	d, err := newDirectory(account{}, false)
	if err != nil {
		t.Fatal(err)
	}
	removeAbandoned(filepath.Dir(d.path))
	if _, err := os.Stat(d.path); err != nil {
		t.Error(err)
	}
	if err := d.remove(); err != nil {
		t.Error(err)
	}
}

// ownTemp gives the test a separate temporary directory: a mistake in removeAbandoned
// must not hit others' servers. Unlike t.TempDir's, the path is short, and open to the
// server's user.
func ownTemp(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgserver-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("TMPDIR", dir)
}

// patience bounds a wait, for slow and busy machines.
const patience = time.Minute
