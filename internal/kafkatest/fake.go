package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/twmb/franz-go/pkg/kfake"
)

// fake is a kfake cluster of one broker. It keeps its data in a directory for
// the sake of resume.
type fake struct {
	dir     string
	port    int
	options options
	cluster *kfake.Cluster // nil while stopped
}

func startFake(dir string, o options) (*fake, error) {
	f := &fake{dir: dir, options: o}
	if err := f.run(); err != nil {
		return nil, err
	}
	return f, nil
}

// run starts the cluster on its port, the first time on any.
func (f *fake) run() (err error) {
	opts := []kfake.Opt{
		kfake.NumBrokers(1), kfake.DataDir(f.dir), kfake.BrokerConfigs(f.options.settings), kfake.ListenFn(f.listen),
	}
	if f.port != 0 {
		opts = append(opts, kfake.Ports(f.port))
	}
	if f.cluster, err = kfake.NewCluster(opts...); err != nil {
		return fmt.Errorf("start kfake: %w", err)
	}
	return nil
}

// listen notes the port. kfake advertises what the listener says of itself.
func (f *fake) listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	f.port = l.Addr().(*net.TCPAddr).Port
	if f.options.advertised == "" {
		return l, nil
	}
	advertised, err := net.ResolveTCPAddr(network, f.options.advertised)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return disguised{l, advertised}, nil
}

// disguised is a listener that gives another address for its own.
type disguised struct {
	net.Listener
	address net.Addr
}

func (d disguised) Addr() net.Addr { return d.address }

func (f *fake) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(f.port)) }

func (f *fake) stop(context.Context) error {
	if f.cluster != nil {
		f.cluster.Close()
		f.cluster = nil
	}
	return nil
}

func (f *fake) resume(context.Context) error { return f.run() }

func (f *fake) close() error { return f.stop(context.Background()) }
