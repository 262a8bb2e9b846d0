// Package dynamoserver runs DynamoDB Local, Amazon's own stand-in for DynamoDB,
// from Maven Central's jars, for tests, examples and measurements.
//
// Invariants:
//
//  1. A server listens on the loopback address, keeps its data in memory, and
//     does not outlive us.
//
// Non-goals: production, access control, Windows.
package dynamoserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
)

// ErrNotToBeHad says that DynamoDB Local cannot be had on this machine: there is
// no Java 17 or, for the first time, no Maven.
var ErrNotToBeHad = errors.New("no DynamoDB Local to be had")

// missing is the scripts' exit code where something that they need is not installed.
const missing = 3

const stopTimeout = 30 * time.Second

// Server is a running DynamoDB Local.
type Server struct {
	version string
	address string
	process *child.Process
	log     string // the file that it writes to
}

// Start gets the jars with scripts/dynamodb.sh, starts a server and waits until
// it answers. The caller must Close it. ctx bounds the start only.
func Start(ctx context.Context) (*Server, error) {
	script, err := child.Script("dynamodb.sh")
	if err != nil {
		return nil, err
	}
	version, err := fetch(ctx, script)
	if err != nil {
		return nil, err
	}
	address, err := freeport.TakeAddress()
	if err != nil {
		return nil, err
	}
	log, err := os.CreateTemp("", "cdc-outbox-dynamodb-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own descriptor
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.Command(script, "run", port)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = child.Attributes(syscall.SIGKILL)
	process, err := child.Start(cmd)
	if err != nil {
		return nil, errors.Join(err, os.Remove(log.Name()))
	}
	s := &Server{version: version, address: address, process: process, log: log.Name()}
	asked := func(ctx context.Context) error { return Answers(ctx, address) }
	if err := await.Ready(ctx, process.Exited(), asked); err != nil {
		text, _ := os.ReadFile(s.log) // best effort: it only explains
		return nil, errors.Join(fmt.Errorf("start DynamoDB Local: %w: %s", err, bytes.TrimSpace(text)), s.Close())
	}
	return s, nil
}

// fetch gets the jars and returns their version.
func fetch(ctx context.Context, script string) (version string, err error) {
	cmd := exec.CommandContext(ctx, script, "fetch")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	dir, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == missing {
		err = ErrNotToBeHad
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimPrefix(filepath.Base(strings.TrimSpace(string(dir))), "dynamodb-local-"), nil
}

// Version returns the version of the jars.
func (s *Server) Version() string { return s.version }

// Addr returns the server's host and port.
func (s *Server) Addr() string { return s.address }

// Close kills the server.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return errors.Join(s.process.Stop(ctx, syscall.SIGKILL), os.Remove(s.log))
}

// NewClient returns a client of a DynamoDB Local at an address; a nil transport
// is the SDK's own.
func NewClient(address string, transport *http.Transport, change ...func(*sdk.Options)) *sdk.Client {
	o := sdk.Options{
		Region:       "us-east-1",
		BaseEndpoint: aws.String("http://" + address),
		Credentials:  credentials.NewStaticCredentialsProvider("test", "test", ""), // any will do
	}
	if transport != nil {
		o.HTTPClient = &http.Client{Transport: transport}
	}
	return sdk.New(o, change...)
}

// Answers returns nil if a server at the address answers, be it to refuse: an
// unsigned request is all it takes.
func Answers(ctx context.Context, address string) error {
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
