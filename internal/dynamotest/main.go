package dynamotest

import (
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/container"
	"github.com/cdc-outbox/cdc-outbox/internal/dynamoserver"
)

// shared is the server of Shared, started by the first test that asks.
var shared struct {
	once      sync.Once
	server    *running
	err       error
	transport *http.Transport // of SharedClient
}

func startShared() {
	shared.server, shared.err = start()
	shared.transport = newTransport()
}

// Shared returns a server that all tests of the package share. Main must be the
// package's TestMain, or With be part of it.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.once.Do(startShared)
	if shared.err != nil {
		giveUp(t, shared.err)
	}
	return &Server{Address: shared.server.address}
}

// SharedClient returns a client of the server that Shared returns, for Example
// functions, which have no *testing.T. It must not be used after Main.
func SharedClient() (*sdk.Client, error) {
	shared.once.Do(startShared)
	if shared.err != nil {
		return nil, shared.err
	}
	return dynamoserver.NewClient(shared.server.address, shared.transport), nil
}

// Main runs a package's tests, removes the shared server, fails if a goroutine
// is left and exits. Call it from TestMain.
func Main(m interface{ Run() int }, opts ...goleak.Option) {
	code := With(m).Run()
	if err := goleak.Find(append(opts, container.Goroutines()...)...); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines left behind:", err)
		code = 1
	}
	os.Exit(code)
}

// With returns what runs m and then removes the shared server, for a TestMain
// with several environments: pgtest.Main(dynamotest.With(m)).
func With(m interface{ Run() int }) interface{ Run() int } { return runner{m} }

type runner struct{ inner interface{ Run() int } }

// Run implements what Main and pgtest.Main ask for.
func (r runner) Run() int {
	code := r.inner.Run()
	if shared.server != nil {
		shared.transport.CloseIdleConnections()
		if err := shared.server.close(); err != nil {
			fmt.Fprintln(os.Stderr, "remove DynamoDB Local:", err)
			code = 1
		}
	}
	return code
}
