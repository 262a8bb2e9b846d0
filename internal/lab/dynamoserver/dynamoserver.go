// Package dynamoserver runs DynamoDB Local, Amazon's own stand-in for DynamoDB,
// from Maven Central's jars, for tests, examples and measurements.
//
// Invariants:
//
//  1. A server listens on the loopback address, keeps the data in memory, and
//     does not outlive us.
//
// Non-goals: production, access control, Windows.
package dynamoserver

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

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
)

// ErrNotToBeHad says that DynamoDB Local cannot be had on this machine: there is
// no Java 17 or, for the first time, no Maven.
var ErrNotToBeHad = errors.New("no DynamoDB Local to be had")

// Server is a running DynamoDB Local.
type Server struct {
	*child.Server
	version string
}

// Start gets the jars with scripts/dynamodb.sh, starts a server and waits until
// it answers. The caller must Close it. ctx bounds the start only.
func Start(ctx context.Context) (*Server, error) {
	script, err := child.Script("dynamodb.sh")
	if err != nil {
		return nil, err
	}
	jars, err := child.Fetch(ctx, script)
	if errors.Is(err, child.ErrNotInstalled) {
		err = fmt.Errorf("%w: %w", ErrNotToBeHad, err)
	}
	if err != nil {
		return nil, err
	}
	log, err := os.CreateTemp("", "cdc-outbox-dynamodb-*.log")
	if err != nil {
		return nil, err
	}
	_ = log.Close()
	server := &child.Server{Name: "DynamoDB Local", Log: log.Name(), PortTaken: "Address already in use"}
	server.Command = func() (*exec.Cmd, error) { return exec.Command(script, "run", strconv.Itoa(server.Port)), nil }
	server.Answers = func(ctx context.Context) error { return child.AnswersHTTP(ctx, server.Addr()) }
	s := &Server{Server: server, version: strings.TrimPrefix(filepath.Base(jars), "dynamodb-local-")}
	if err := server.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Version returns the version of the jars.
func (s *Server) Version() string { return s.version }

// Close kills the server.
func (s *Server) Close() error { return errors.Join(s.Server.Close(), os.Remove(s.Log)) }

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
