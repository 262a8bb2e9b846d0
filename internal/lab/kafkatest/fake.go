package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
)

// fake is a kfake cluster of a single broker. fake keeps the data in a
// directory for the sake of Resume.
type fake struct {
	dir     string
	port    int
	options options
	cluster *kfake.Cluster // nil while stopped
}

func startFake(dir string, o options) (*fake, error) {
	port, err := freeport.Take()
	if err != nil {
		return nil, err
	}
	f := &fake{dir: dir, port: port, options: o}
	if err := f.run(); err != nil {
		return nil, err
	}
	return f, nil
}

// run starts the cluster on the port.
func (f *fake) run() (err error) {
	f.cluster, err = kfake.NewCluster(append(fakeLogins(f.options.users), kfake.NumBrokers(1), kfake.Ports(f.port),
		kfake.DataDir(f.dir), kfake.BrokerConfigs(f.options.settings), kfake.ListenFn(f.listen))...)
	if err != nil {
		return fmt.Errorf("start kfake: %w", err)
	}
	return nil
}

// listen has kfake advertise the clients' address: kfake takes the listener's.
func (f *fake) listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	if err != nil || f.options.advertised == "" {
		return l, err
	}
	advertised, err := net.ResolveTCPAddr(network, f.options.advertised)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return disguised{l, advertised}, nil
}

// disguised is a listener giving another address for its own.
type disguised struct {
	net.Listener
	address net.Addr
}

func (d disguised) Addr() net.Addr { return d.address }

// Addr implements server.
func (f *fake) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(f.port)) }

// Stop implements server.
func (f *fake) Stop(context.Context, syscall.Signal) error { return f.Close() }

// Resume implements server.
func (f *fake) Resume(context.Context) error { return f.run() }

// Ended implements server: kfake does not end by itself.
func (f *fake) Ended(context.Context) error { return nil }

// Close implements server.
func (f *fake) Close() error {
	if f.cluster != nil {
		f.cluster.Close()
		f.cluster = nil
	}
	return nil
}
