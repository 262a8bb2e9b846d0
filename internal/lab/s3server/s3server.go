// Package s3server runs S3Proxy, a server with Amazon's S3 protocol, from Maven Central's jars, for
// tests: it checks signatures, and keeps buckets as directories.
//
// Invariants:
//
//  1. A server listens on the loopback address, and does not outlive us.
//
// Non-goals: production, access rules of buckets, lifecycle rules.
package s3server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
)

// ErrNotToBeHad says that S3Proxy cannot be had on this machine: there is no Java 17 or, for the
// first time, no Maven.
var ErrNotToBeHad = errors.New("no S3Proxy to be had")

// missing is the scripts' exit code where something they need is not installed.
const missing = 3

// The credentials of every server.
const (
	AccessKey = "claims"
	SecretKey = "not-a-secret"
)

// Server is a running S3Proxy.
type Server struct {
	*child.Server
	dir string
}

// Start gets the jars with scripts/s3proxy.sh, starts a server and waits until it answers. The
// caller must Close it. ctx bounds the start only.
func Start(ctx context.Context) (*Server, error) {
	script, err := child.Script("s3proxy.sh")
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, script, "fetch").CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == missing {
		err = ErrNotToBeHad
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	dir, err := os.MkdirTemp("", "cdc-outbox-s3-*")
	if err != nil {
		return nil, err
	}
	log := filepath.Join(dir, "log")
	server := &child.Server{Name: "S3Proxy", Log: log, PortTaken: "Address already in use"}
	server.Command = func() (*exec.Cmd, error) {
		return exec.Command(script, "run", strconv.Itoa(server.Port), dir, AccessKey, SecretKey), nil
	}
	server.Answers = func(ctx context.Context) error { return answers(ctx, server.Addr()) }
	s := &Server{Server: server, dir: dir}
	if err := server.Start(ctx); err != nil {
		said, _ := os.ReadFile(log)
		return nil, errors.Join(err, errors.New(string(said)), s.Close())
	}
	return s, nil
}

// Endpoint is the server's URL.
func (s *Server) Endpoint() string { return "http://" + s.Addr() }

// Bucket makes a bucket, and returns its directory: an object is a file under its key.
func (s *Server) Bucket(name string) (dir string, err error) {
	dir = filepath.Join(s.dir, "buckets", name)
	return dir, os.MkdirAll(dir, 0o700)
}

// Close kills the server and removes its buckets.
func (s *Server) Close() error { return errors.Join(s.Server.Close(), os.RemoveAll(s.dir)) }

// answers returns nil if a server answers, be it to refuse.
func answers(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
