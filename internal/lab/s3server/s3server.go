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
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// ErrNotToBeHad says that S3Proxy cannot be had on this machine: there is no Java 17 or, for the
// first time, no Maven.
var ErrNotToBeHad = errors.New("no S3Proxy to be had")

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
	if _, err := child.Fetch(ctx, script); errors.Is(err, child.ErrNotInstalled) {
		return nil, fmt.Errorf("%w: %w", ErrNotToBeHad, err)
	} else if err != nil {
		return nil, err
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
	server.Answers = func(ctx context.Context) error { return child.AnswersHTTP(ctx, server.Addr()) }
	s := &Server{Server: server, dir: dir}
	if err := server.Start(ctx); err != nil {
		said, _ := os.ReadFile(log)
		return nil, errors.Join(err, errors.New(string(said)), s.Close())
	}
	return s, nil
}

// patience is for a download, and the start.
const patience = 5 * time.Minute

// ForTest is Start for a test, which is skipped where S3Proxy is not to be had.
func ForTest(t testing.TB) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := Start(ctx)
	if errors.Is(err, ErrNotToBeHad) {
		t.Skip(err)
	}
	must.OK(t, err)
	t.Cleanup(func() { must.OK(t, s.Close()) })
	return s
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
