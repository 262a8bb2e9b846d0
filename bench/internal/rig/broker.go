package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
)

// KafkaTimeout is how long a broker may take for an answer.
const KafkaTimeout = 2 * time.Minute

// JVMOptions are the JVM options of Kafka's own scripts (bin/kafka-run-class.sh,
// KAFKA_JVM_PERFORMANCE_OPTS), apart from the heap.
const JVMOptions = "-server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 " +
	"-XX:+ExplicitGCInvokesConcurrent -Djava.awt.headless=true"

// Broker is a broker in a separate process. Safe for concurrent use.
type Broker struct {
	Addr    string
	TLSAddr string // of Apache Kafka
	CA      string // the file with the authority for TLSAddr
	Name    string
	Version string
	Admin   *kadm.Client
	process *Process
	others  []*Process // of a cluster: all
	client  *kgo.Client
	dir     string
	relay   *Relay // in front; nil: none

	replicas int16 // of topics; 0 means 1
	brokers  int   // of a cluster
}

// fakeRole makes of a benchmark's program a broker.
const fakeRole = "rig-broker"

// StartBroker starts a broker of Apache Kafka, or kfake.
func StartBroker(ctx context.Context, kafka bool) (*Broker, error) {
	if kafka {
		return StartKafka(ctx, 1)
	}
	return StartFake(ctx)
}

// StartFake starts kfake, cheap enough to show the connector's own limit. The
// program's main must be Main.
func StartFake(ctx context.Context) (*Broker, error) { return startFake(ctx, nil) }

// StartFar is StartBroker, with a Relay in front that delays each direction.
func StartFar(ctx context.Context, kafka bool, delay time.Duration) (*Broker, error) {
	if kafka {
		return startKafka(ctx, 1, &delay)
	}
	return startFake(ctx, &delay)
}

// startFake is StartFake or, with a delay, StartFar.
func startFake(ctx context.Context, delay *time.Duration) (*Broker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b := &Broker{Name: "kfake", Version: "in memory"}
	if b.Addr, err = freeport.TakeAddress(); err != nil {
		return nil, err
	}
	own := b.Addr
	if delay != nil {
		if err := b.goFar(ctx, *delay); err != nil {
			return nil, err
		}
	}
	if b.process, err = Start("broker", exec.Command(self, fakeRole, own, b.Addr)); err == nil {
		err = b.process.Explain(b.connect(ctx))
	}
	if err != nil {
		b.Stop()
		return nil, fmt.Errorf("start kfake: %w", err)
	}
	return b, nil
}

// goFar puts a relay in front of a broker to be started at Addr.
func (b *Broker) goFar(ctx context.Context, delay time.Duration) error {
	r, err := StartRelay(ctx, b.Addr, delay)
	if err == nil {
		b.Addr, b.relay = r.Addr, r
	}
	return err
}

// serveFake is kfake's process: it listens at the first address, and sends clients to
// the second.
func serveFake(ctx context.Context, args []string) error {
	own, err := net.ResolveTCPAddr("tcp", args[0])
	if err != nil {
		return err
	}
	told, err := net.ResolveTCPAddr("tcp", args[1])
	if err != nil {
		return err
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(own.Port), kfake.ListenFn(func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		return renamed{l, told}, err // kfake sends clients to the address of its listener
	}))
	if err != nil {
		return err
	}
	<-ctx.Done()
	cluster.Close()
	return nil
}

// renamed is a listener under another address.
type renamed struct {
	net.Listener
	address net.Addr
}

// Addr implements net.Listener.
func (r renamed) Addr() net.Addr { return r.address }

// connect returns once the broker has a controller.
func (b *Broker) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, KafkaTimeout)
	defer cancel()
	var err error
	if b.client, err = kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.MetadataMinAge(10*time.Millisecond)); err != nil {
		return err
	}
	b.Admin = kadm.NewClient(b.client)
	ask := kmsg.NewPtrMetadataRequest() // the client would keep kadm's answer, however few brokers are in it
	ask.Topics = []kmsg.MetadataRequestTopic{}
	return await.Ready(ctx, b.process.Exited(), func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		meta, err := ask.RequestWith(ctx, b.client)
		if err == nil && (len(meta.Brokers) < max(1, b.brokers) || meta.ControllerID < 0) {
			err = errors.New("there is no controller")
		}
		return err
	})
}

// Stop ends the broker without ceremony: nobody needs the data any more.
func (b *Broker) Stop() {
	if b.client != nil {
		b.client.Close()
	}
	for _, p := range append(b.others, b.process) {
		if p != nil {
			p.Kill()
		}
	}
	if b.relay != nil {
		b.relay.Stop()
	}
	_ = os.RemoveAll(b.dir) // a temporary directory
}

// CreateTopic makes a topic whose records the broker stamps when it appends
// them: so each record's arrival in Kafka is known to the millisecond, without a
// consumer competing for the processors.
func (b *Broker) CreateTopic(ctx context.Context, name string, partitions int) error {
	return b.CreateTopics(ctx, partitions, name)
}

// CreateTopics is CreateTopic for several at once.
func (b *Broker) CreateTopics(ctx context.Context, partitions int, names ...string) error {
	stamp := "LogAppendTime"
	ctx, cancel := context.WithTimeout(ctx, KafkaTimeout)
	defer cancel()
	made, err := b.Admin.CreateTopics(ctx, int32(partitions), max(1, b.replicas), map[string]*string{"message.timestamp.type": &stamp}, names...)
	if err := errors.Join(err, made.Error()); err != nil {
		return fmt.Errorf("create topic %s: %w", names[0], err)
	}
	// The controller has the topic; the broker learns of it a moment later.
	if err := await.Ready(ctx, b.process.Exited(), func(ctx context.Context) error {
		_, err := b.Records(ctx, names...)
		return err
	}); err != nil {
		return fmt.Errorf("wait for topic %s: %w", names[0], err)
	}
	return nil
}

// DeleteTopic removes topics with all records.
func (b *Broker) DeleteTopic(names ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), KafkaTimeout)
	defer cancel()
	_, err := b.Admin.DeleteTopics(ctx, names...)
	return err
}

// Passed is how many bytes kfake has read and written: all with clients, as kfake is in memory.
func (b *Broker) Passed() (int64, error) { return b.process.passed() }

// Records is how many the topics have.
func (b *Broker) Records(ctx context.Context, topics ...string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, KafkaTimeout)
	defer cancel()
	offsets, err := b.Admin.ListEndOffsets(ctx, topics...)
	if err != nil {
		return 0, err
	}
	var n int64
	offsets.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n, offsets.Error()
}
