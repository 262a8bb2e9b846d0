// Package httpapi answers operators and orchestrators over HTTP: /livez,
// /readyz, /metrics, /status, and the page at /.
//
// Invariants:
//
//  1. Nothing changes the connector's state: every path takes GET and HEAD
//     only.
//  2. Asking never waits for PostgreSQL or Kafka: Health answers from memory.
//  3. Explanations of a state are told only under a name of the server:
//     otherwise a foreign site's script, with a DNS name for our address, could
//     read them. Verdicts and metrics are told under any name.
//  4. Serve returns only after the last request was answered or cut off.
//
// Non-goals: authentication, except the page's token, and TLS. The default address
// is loopback; any other address needs a proxy or a network policy.
package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

const (
	// requestTimeout bounds the reading of a request and, separately, the answer.
	requestTimeout = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	// shutdownTimeout bounds the wait for requests under way at a stop.
	shutdownTimeout = 2 * time.Second
	maxHeaderBytes  = 16 << 10
)

// Health is the state for the endpoints. The methods are called concurrently and
// must not block.
type Health interface {
	// Live returns why the process should be restarted, or nil.
	Live() error
	// Ready reports whether events flow, or would if there were any, with the reasons
	// against. Of a process that is ready, the reasons are against parts.
	Ready() (ok bool, reasons []string)
	// Status returns the content of /status, as JSON.
	Status() any
}

// Page is the page at /, implemented by package page.
type Page interface {
	// Register adds the paths.
	Register(mux *http.ServeMux)
	// Knows returns why a request with this Host header is refused; nil if the header
	// names this server.
	Knows(host string) error
	// Run keeps the page up to date until ctx ends, and ends its requests.
	Run(ctx context.Context)
}

// Server answers on an address. Make it with Listen; Serve it once, or Close
// it.
type Server struct {
	listener net.Listener
	http     *http.Server
	page     Page
}

// Listen binds the address, host:port as in http.listen; port 0 is any free port.
// The server does not answer before Serve. An unavailable address is a
// failure.Config error: waiting does not help.
func Listen(address string, health Health, metrics prometheus.Gatherer, page Page, logger *zap.Logger) (*Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, failure.Configf(listenRemedy(err), "http.listen %q: %w", address, cause(err))
	}
	return &Server{
		listener: listener,
		page:     page,
		http: &http.Server{
			Handler:           handler(health, metrics, page),
			ReadHeaderTimeout: requestTimeout,
			ReadTimeout:       requestTimeout,
			WriteTimeout:      requestTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			ErrorLog:          serverLog(logger),
		},
	}, nil
}

// Addr is the bound address.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close releases the address of a server that is not served.
func (s *Server) Close() error { return s.listener.Close() }

// Serve answers until ctx ends, lets requests under way finish for a moment,
// and returns nil. Serve returns early with an error only if the listener
// breaks. It runs the page beside, and joins it.
func (s *Server) Serve(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	var page sync.WaitGroup
	page.Go(func() { s.page.Run(ctx) })
	defer page.Wait()
	defer end()
	stopped := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() { // joined below
		defer close(stopped)
		s.shutDown(ctx)
	})
	err := s.http.Serve(s.listener)
	if !cancel() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve http.listen %s: %w", s.Addr(), err)
}

// shutDown closes idle connections at once and the others after their answer
// or shutdownTimeout.
func (s *Server) shutDown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close() // the listener is closed already; the rest is cut off
	}
}

func listenRemedy(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return `another process listens there: set http.listen to another port, or to "" for no HTTP`
	case errors.Is(err, os.ErrPermission):
		return "ports below 1024 need a privilege: set http.listen to a higher one"
	default:
		return "set http.listen to an address of this machine, for example 127.0.0.1:8080"
	}
}

// cause leaves out net's repetitions: the operation and the address.
func cause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// serverLog passes net/http's complaints about clients on at Debug.
func serverLog(logger *zap.Logger) *log.Logger {
	std, err := zap.NewStdLogAt(logger, zap.DebugLevel)
	if err != nil { // only for an unknown level
		return nil
	}
	return std
}
