// Package dynamotest gives tests DynamoDB Local, Amazon's own stand-in for
// DynamoDB.
//
// A package whose tests need it calls Main from its TestMain, and Shared in the
// tests, which keep apart by tables of their own.
//
// It runs in a container where a Docker engine answers (and
// CDC_OUTBOX_TEST_DOCKER is not 0), else from Maven Central's jars, which need
// Java 17 and, once, Maven; see scripts/dynamodb.sh.
//
// Invariants:
//
//  1. No server outlives the package's tests.
//  2. A test is skipped, with the reason, only where DynamoDB Local is not to be
//     had.
//
// Non-goals: faults (see package proxy), and what DynamoDB Local lacks:
// throttling, replicas, access control, eventually consistent reads that lag.
package dynamotest

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/cdc-outbox/cdc-outbox/idempotency/dynamodb"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/dynamoserver"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// connections bounds those a client keeps open: tests are concurrent.
const connections = 64

// Server is a running DynamoDB Local. The methods fail the test they are given
// when they cannot do what they say.
type Server struct {
	// Address is host:port.
	Address string
}

var tables atomic.Int64

// Client returns a client of the server ending with the test. Options may be
// changed first.
func (s *Server) Client(t testing.TB, change ...func(*sdk.Options)) *sdk.Client {
	t.Helper()
	transport := newTransport()
	t.Cleanup(transport.CloseIdleConnections)
	return dynamoserver.NewClient(s.Address, transport, change...)
}

// Table creates a table for package idempotency/dynamodb and returns the name.
func (s *Server) Table(t testing.TB) string {
	t.Helper()
	name := "idempotency-" + strconv.FormatInt(tables.Add(1), 10)
	testserver.Do(t, "create table "+name, func(ctx context.Context) error {
		store, err := dynamodb.New(s.Client(t), dynamodb.Options{Table: name})
		if err != nil {
			return err
		}
		return store.CreateTable(ctx)
	})
	return name
}
