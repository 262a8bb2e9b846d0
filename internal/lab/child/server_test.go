package child_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// server returns a server that runs a shell script, and counts as started once
// it has written "up" since then.
func server(t *testing.T, script string) *child.Server {
	t.Helper()
	s := &child.Server{Name: "script", Log: filepath.Join(t.TempDir(), "log"), PortTaken: "in use"}
	var before []byte
	s.Command = func() (*exec.Cmd, error) {
		before, _ = os.ReadFile(s.Log)
		return exec.Command("sh", "-c", script, "", s.Addr()), nil
	}
	s.Answers = func(context.Context) error {
		if text, _ := os.ReadFile(s.Log); !strings.HasSuffix(string(text[len(before):]), "up\n") {
			return errors.New("silence")
		}
		return nil
	}
	t.Cleanup(func() { must.OK(t, s.Close()) })
	return s
}

func TestServerKeepsItsAddress(t *testing.T) {
	s := server(t, `echo "$1"; echo up; exec tail -f /dev/null`)
	must.OK(t, s.Start(t.Context()))
	must.OK(t, s.Pause())
	must.OK(t, s.Continue())
	must.OK(t, s.Ended(t.Context()))
	must.OK(t, s.Close())
	if err := s.Pause(); err == nil {
		t.Error("a stopped server can be paused")
	}
	must.OK(t, s.Resume(t.Context()))
	want := strings.Repeat(s.Addr()+"\nup\n", 2)
	if text := string(must.Get(os.ReadFile(s.Log))(t)); text != want {
		t.Errorf("log %q, want %q", text, want)
	}
}

func TestServerTriesAnotherPort(t *testing.T) {
	s := server(t, `test -e taken && echo up && exec tail -f /dev/null; touch taken; echo "$1 in use"`)
	dir, command := t.TempDir(), s.Command
	s.Command = func() (*exec.Cmd, error) {
		cmd, err := command()
		cmd.Dir = dir
		return cmd, err
	}
	must.OK(t, s.Start(t.Context()))
	text := string(must.Get(os.ReadFile(s.Log))(t))
	taken, rest, _ := strings.Cut(text, " in use\n")
	if _, _, err := net.SplitHostPort(taken); err != nil || taken == s.Addr() || rest != "up\n" {
		t.Errorf("the server is at %s; log %q", s.Addr(), text)
	}
}

func TestServerThatEndsSaysWhy(t *testing.T) {
	s := server(t, `echo broken; exit 1`)
	if err := s.Start(t.Context()); !errors.Is(err, await.ErrExited) || !strings.HasSuffix(err.Error(), "broken") {
		t.Errorf("%v, want %v and the reason", err, await.ErrExited)
	}
	s.Answers = nil
	must.OK(t, s.Resume(t.Context()))
	await.Until(t, "the server has ended", func() bool { return errors.Is(s.Ended(t.Context()), await.ErrExited) })
}
