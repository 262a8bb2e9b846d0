package dynamotest

import (
	"context"
	"net/http"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/container"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/dynamoserver"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// image is Amazon's own; the version is that of scripts/dynamodb.sh.
const image, version = "amazon/dynamodb-local:", "2.6.1"

// server is one in whatever form.
type server interface {
	Addr() string
	Close() error
}

func start(ctx context.Context) (server, error) {
	contained, err := container.Chosen("")
	if err != nil {
		return nil, err
	}
	if contained {
		tell(version, contained)
		return container.Run(ctx, container.Spec{Image: image + version, Port: 8000, Probe: child.AnswersHTTP})
	}
	s, err := dynamoserver.Start(ctx)
	if err != nil {
		return nil, err
	}
	tell(s.Version(), contained)
	return s, nil
}

func tell(version string, contained bool) {
	testserver.Used("DynamoDB Local", version+" ("+testserver.Where(contained)+")")
}

var (
	shared = testserver.Shared[server]{Name: "DynamoDB Local", Absent: dynamoserver.ErrNotToBeHad, Start: start}
	// transport is that of SharedClient.
	transport = newTransport()
)

// Shared returns a server all tests of the package share. Main must be the
// package's TestMain, or With be part of it.
func Shared(t testing.TB) *Server {
	t.Helper()
	return &Server{Address: shared.For(t).Addr()}
}

// SharedClient returns a client of the server that Shared returns, for Example
// functions, which have no *testing.T. SharedClient must not be used after
// Main.
func SharedClient() (*sdk.Client, error) {
	s, err := shared.Get()
	if err != nil {
		return nil, err
	}
	return dynamoserver.NewClient(s.Addr(), transport), nil
}

// Main runs a package's tests, removes the shared server, fails if a goroutine
// is left and exits. Call it from TestMain.
func Main(m testserver.Runner, opts ...goleak.Option) { testserver.Main(With(m), opts...) }

// With returns what runs m and then removes the shared server, for a TestMain
// with several environments: pgtest.Main(dynamotest.With(m)).
func With(m testserver.Runner) testserver.Runner { return hangUp{shared.With(m)} }

// hangUp closes the connections of SharedClient after the tests.
type hangUp struct{ testserver.Runner }

// Run implements testserver.Runner.
func (h hangUp) Run() int {
	defer transport.CloseIdleConnections()
	return h.Runner.Run()
}

func newTransport() *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: connections}
}
