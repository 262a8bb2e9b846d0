// Package kafkatest gives tests a Kafka broker.
//
// The broker is kfake, in this process, unless CDC_OUTBOX_TEST_KAFKA is "real": then
// Apache Kafka in KRaft mode, in a container where a Docker engine answers (and
// CDC_OUTBOX_TEST_DOCKER is not 0), else from Maven Central's jars, see
// scripts/kafka.sh. A test passing with any of them passes with all.
//
// Invariants:
//
//  1. Each broker is a single test's and ends with the test.
//  2. A topic exists only if somebody created it.
//  3. Stop and Resume keep the broker's address and all acknowledged records.
//
// Non-goals: faults on the network (see package proxy), and TLS, for which there is
// kfake itself.
package kafkatest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/container"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// opTimeout bounds each operation on a broker, for slow and busy machines.
const opTimeout = 2 * time.Minute

// kindEnv chooses the kind of broker; see the package's documentation.
const kindEnv = "CDC_OUTBOX_TEST_KAFKA"

// Real reports whether the brokers are Apache Kafka rather than kfake.
func Real() bool { return os.Getenv(kindEnv) == "real" }

// Option changes the broker Start starts.
type Option func(*options)

type options struct {
	settings   map[string]string
	advertised string // "" for the broker's own address
	apache     bool
	users      []string // see Logins

	oneController bool       // of a cluster
	ways          [][]string // of a cluster, see Ways
}

// Apache makes the broker Apache Kafka whatever the environment says, where kfake
// would prove nothing. Where Apache Kafka does not run, the test is skipped.
func Apache() Option { return func(o *options) { o.apache = true } }

// errNoApache is why there is no Apache Kafka here.
var errNoApache = errors.New("apache Kafka needs Java, and Maven to be downloaded")

// apacheRuns tells whether scripts/kafka.sh can run a broker.
func apacheRuns() bool {
	_, java := exec.LookPath("java")
	_, maven := exec.LookPath("mvn")
	return java == nil && maven == nil
}

// Setting sets a broker setting, such as message.max.bytes.
func Setting(name, value string) Option {
	return func(o *options) { o.settings[name] = value }
}

// Advertised makes the broker tell the clients to connect to the address, a proxy's
// in front of the broker. This package's clients connect to the broker.
func Advertised(address string) Option {
	return func(o *options) { o.advertised = address }
}

// Broker is a running broker. A failing method fails the given test.
type Broker struct {
	// Brokers are the addresses to give a client.
	Brokers  []string
	server   server   // nil in a Cluster
	all      []server // server alone, or a Cluster's
	replicas int16    // of topics
	users    []string // see Logins
}

// server is the common interface of the kinds of broker. Broker awaits the answer
// after a start.
type server interface {
	Addr() string
	Stop(ctx context.Context, sig syscall.Signal) error
	Resume(ctx context.Context) error
	// Ended returns await.ErrExited, with the last lines of the log, once the broker
	// has ended by itself.
	Ended(ctx context.Context) error
	Close() error
}

// Start starts a broker ending with the test.
func Start(t testing.TB, opts ...Option) *Broker {
	t.Helper()
	o := options{settings: map[string]string{}}
	for _, opt := range opts {
		opt(&o)
	}
	inner := testserver.Start(t, "Kafka", errNoApache, func(ctx context.Context) (server, error) { return start(ctx, t, o) })
	b := &Broker{Brokers: []string{inner.Addr()}, server: inner, all: []server{inner}, replicas: 1, users: o.users}
	testserver.Do(t, "start Kafka", b.awaitReady)
	if b.users != nil {
		testserver.Do(t, "add logins", b.addScram)
	}
	return b
}

func start(ctx context.Context, t testing.TB, o options) (server, error) {
	if !Real() && !o.apache {
		testserver.Used("Kafka", "kfake")
		return startFake(t.TempDir(), o)
	}
	if o.advertised != "" {
		o.settings["advertised.listeners"] = "PLAINTEXT://" + o.advertised
	}
	if o.users != nil {
		maps.Copy(o.settings, secured(o.users))
	}
	contained, err := container.Chosen("")
	if err != nil {
		return nil, err
	}
	switch {
	case contained:
		tell(contained)
		return startContainer(ctx, o)
	case !Real() && !apacheRuns():
		return nil, errNoApache
	}
	tell(contained)
	return startReal(t, o)
}

// version is Apache Kafka's, as in scripts/kafka.sh.
func version() string { return cmp.Or(os.Getenv(versionEnv), "4.4.0") }

// versionEnv chooses the version, also for scripts/kafka.sh.
const versionEnv = "CDC_OUTBOX_KAFKA_VERSION"

func tell(contained bool) {
	testserver.Used("Apache Kafka", version()+" ("+testserver.Where(contained)+")")
}

// Kill ends the broker with kill -9. Resume starts the broker again.
func (b *Broker) Kill(t testing.TB) {
	t.Helper()
	testserver.Do(t, "kill Kafka", func(ctx context.Context) error { return b.server.Stop(ctx, syscall.SIGKILL) })
}

// Stop stops the broker; clients see connections refused.
func (b *Broker) Stop(t testing.TB) {
	t.Helper()
	testserver.Do(t, "stop Kafka", func(ctx context.Context) error { return b.server.Stop(ctx, syscall.SIGTERM) })
}

// Resume starts a stopped broker again.
func (b *Broker) Resume(t testing.TB) {
	t.Helper()
	testserver.Do(t, "start Kafka again", func(ctx context.Context) error {
		if err := b.server.Resume(ctx); err != nil {
			return err
		}
		return b.awaitReady(ctx)
	})
}

// Restart stops and starts the broker.
func (b *Broker) Restart(t testing.TB) {
	t.Helper()
	b.Stop(t)
	b.Resume(t)
}

// awaitReady returns once each broker takes part in a cluster with a controller, as
// brokers accept connections earlier.
func (b *Broker) awaitReady(ctx context.Context) error {
	client, err := b.newClient(kgo.RetryTimeout(time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	ask := kmsg.NewPtrMetadataRequest() // the client would keep kadm's answer, however few brokers are in it
	ask.Topics = []kmsg.MetadataRequestTopic{}
	return await.Ready(ctx, nil, func(ctx context.Context) error {
		for _, server := range b.all {
			if err := server.Ended(ctx); err != nil {
				return err
			}
		}
		for _, broker := range client.SeedBrokers() { // a broker known to the others may refuse connections yet
			meta, err := ask.RequestWith(ctx, broker)
			if err == nil && (len(meta.Brokers) < len(b.Brokers) || meta.ControllerID < 0) {
				err = fmt.Errorf("there is no controller, or a broker of %d is missing", len(b.Brokers))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
