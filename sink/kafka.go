package sink

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/lease"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

var _ Sink = (*Kafka)(nil)

// waits are the waits between attempts, ours and the client's.
var waits = backoff.Range{First: 100 * time.Millisecond, Longest: 2 * time.Second}

// Kafka is the Sink for a Kafka cluster. The producer is idempotent and waits for
// all in-sync replicas.
type Kafka struct {
	cfg        Options
	deadLetter string // the topic; "" for none
	letters    letterLimit
	quarantine string // the topic; "" for none
	// holds tells that an event must not be sent, as an event before it was refused.
	holds func(*transform.Event) bool
	log   *zap.Logger

	encoder      Encoder // nil: records are as they are
	values       Values  // nil: none is kept elsewhere
	observer     Observer
	transactions TransactionObserver // of Transactions

	client      *kgo.Client
	clientOpts  []kgo.Opt
	barrier     *writeBarrier
	partitions  *chosen
	connections *connections
	lease       *lease.Lease // nil: always held

	topics map[string]*topic
	// acked is written by the sink's goroutine only, under ledger; others read it under ledger.
	acked    map[string]*acked
	ledger   sync.Mutex
	compared bool            // Compare was called
	waiting  map[string]bool // missing topics the observer was told of
	unlearnt bool            // the observer knows of a wait for the schema registry
	unkept   bool            // the observer knows of a wait for the claim store
	absents  absent

	round  []placed // reused
	shares []*share // of the round last placed or tallied
	// loading are the topics for the client to load in the round.
	loading []*topic
	rounds  uint64 // numbers the rounds

	// failed has the errors of the attempt in flight. The client's promises
	// write it, one at a time; to be read after the flush.
	failed map[*kgo.Record]error
	onDone func(*kgo.Record, error)
	// said are the brokers' words on refusals in the same attempt.
	said answers
	// refused is how often in a row brokers refused a producer id.
	refused      int
	refusedWaits backoff.Series
	refusing     bool // the observer knows of a lasting refusal
	// complained is the time of the last log line about lasting trouble.
	complained time.Time
	// stopped is the first error of Deliver or DeadLetter.
	stopped error
}

// Option configures NewKafka.
type Option func(*Kafka)

// WithLogger logs to log; the default is not to.
func WithLogger(log *zap.Logger) Option { return func(k *Kafka) { k.log = log } }

// WithDeadLetterTopic makes DeadLetter write to topic. Without it DeadLetter
// fails.
func WithDeadLetterTopic(topic string) Option { return func(k *Kafka) { k.deadLetter = topic } }

// WithQuarantine names the topic of parked events: what is written there may be larger than
// MaxRecordBytes. Deliver asks holds about each event before it sends the event, and passes an
// event that is held to Reject, with ErrHeld.
func WithQuarantine(topic string, holds func(*transform.Event) bool) Option {
	return func(k *Kafka) { k.quarantine, k.holds = topic, holds }
}

// ErrHeld is the reason of a good event that is passed to Reject.
var ErrHeld = errors.New("an event before it was refused")

// held is the bad event of an event that is held; nil: the event may be sent.
func (k *Kafka) held(ev *transform.Event) *transform.BadEvent {
	if k.holds == nil || !k.holds(ev) {
		return nil
	}
	return &transform.BadEvent{Err: ErrHeld}
}

// tooLarge is the refusal of an event for its size; nil: the size will do.
func (k *Kafka) tooLarge(ev *transform.Event, size int64) *transform.BadEvent {
	if size <= int64(k.cfg.MaxRecordBytes) || k.quarantine != "" && ev.Record.Topic == k.quarantine {
		return nil
	}
	return tooLarge(size, k.cfg.MaxRecordBytes)
}

// WithLease has the sink hand nothing to brokers while the lease is out.
// Records in the client are then tried until the lease is renewed.
func WithLease(l *lease.Lease) Option { return func(k *Kafka) { k.lease = l } }

// NewKafka returns a sink for the cluster of cfg, which must have passed
// validation. NewKafka reads certificate files but opens no connection: an
// unreachable cluster shows in Deliver.
func NewKafka(cfg Options, opts ...Option) (*Kafka, error) { return newProducer(cfg, opts) }

// newProducer is NewKafka with more options of the client.
func newProducer(cfg Options, opts []Option, more ...kgo.Opt) (*Kafka, error) {
	k := &Kafka{
		cfg:        cfg,
		log:        zap.NewNop(),
		barrier:    new(writeBarrier),
		partitions: new(chosen),
		topics:     make(map[string]*topic),
		acked:      make(map[string]*acked),
		waiting:    make(map[string]bool),
		failed:     make(map[*kgo.Record]error),

		observer:     unobserved{},
		transactions: unobserved{},
		refusedWaits: backoff.Series{Range: waits},
	}
	for _, opt := range opts {
		opt(k)
	}
	k.connections = newConnections(cfg, k.log, k.observer)
	k.connections.lease = k.lease
	k.onDone = func(rec *kgo.Record, err error) {
		if err != nil {
			k.failed[rec] = err
		}
	}
	var err error
	if k.clientOpts, err = k.producerOpts(); err != nil {
		return nil, err
	}
	k.clientOpts = append(k.clientOpts, more...)
	if k.client, err = broker.Connect(k.clientOpts...); err != nil {
		return nil, err
	}
	return k, nil
}

// Close implements Sink. Events that are still on their way may or may not
// become durable.
func (k *Kafka) Close() {
	k.client.Close()
	k.connections.refuse(nil)
}

// ClientOpts returns the client options of cfg for any use of the cluster:
// brokers, TLS, authentication and timings. cfg must have passed validation; an
// error is about files, of the class failure.Config.
func ClientOpts(cfg Options) ([]kgo.Opt, error) {
	dial, err := dialer(cfg.TLS, nil)
	if err != nil {
		return nil, err
	}
	return clientOpts(cfg, dial), nil
}

func clientOpts(cfg Options, dial broker.DialFunc) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(cfg.Brokers...),
		kgo.Dialer(broker.Dialer(dial)),
		kgo.DisableClientMetrics(),
		// An outbox may be quiet for minutes, and a first event should not
		// wait for TLS and SASL. Brokers close after ten minutes, common load
		// balancers after four or more.
		kgo.ConnIdleTimeout(3 * time.Minute),
		// A broken connection or a leader's move costs a quarter of a second
		// instead of five.
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.RetryBackoffFn(waits.Wait),
	}
	if cfg.ClientID != "" {
		opts = append(opts, kgo.ClientID(cfg.ClientID))
	}
	if auth := mechanism(cfg.SASL); auth != nil {
		opts = append(opts, kgo.SASL(auth))
	}
	return opts
}

const (
	// maxRequestBytes is the broker's default socket.request.max.bytes.
	maxRequestBytes = 100 << 20
	// requestOverhead is more than a request adds to one batch.
	requestOverhead = 1 << 10
)

// requestBytes is the client's largest request: a broker's default limit, or more
// where the largest record needs more. The client itself allows a gibibyte.
func requestBytes(cfg Options) int32 {
	largest := int64(cfg.MaxRecordBytes)
	return int32(min(max(maxRequestBytes, largest+largest/10+requestOverhead), 1<<30))
}

// producerOpts are ClientOpts and the options Deliver relies on. Idempotence,
// acks=all and unlimited retries are the client's defaults.
func (k *Kafka) producerOpts() ([]kgo.Opt, error) {
	dial, err := dialer(k.cfg.TLS, k.lease)
	if err != nil {
		return nil, err
	}
	return append(clientOpts(k.cfg, k.said.dialer(k.barrier.dialer(dial))),
		kgo.WithLogger(debugLogger{k.log.Named("kgo").Sugar()}),
		kgo.WithHooks(k.connections),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(codecs[k.cfg.Compression]),
		kgo.RecordPartitioner(k.partitions),
		kgo.StopProducerOnDataLossDetected(),
		// The round decides about the content and the time of a batch. The
		// client's own limits must never cut a batch in two.
		kgo.ManualFlushing(),
		kgo.MaxBufferedRecords(1<<30),
		kgo.ProducerBatchMaxBytes(requestBytes(k.cfg)-requestOverhead),
		kgo.BrokerMaxWriteBytes(requestBytes(k.cfg)),
	), nil
}

// codecs are the values of sink.kafka.compression.
var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

// debugLogger passes the client's messages on at debug level: this package logs
// everything an operator needs, once.
type debugLogger struct{ log *zap.SugaredLogger }

// Level implements kgo.Logger.
func (l debugLogger) Level() kgo.LogLevel {
	if l.log.Level().Enabled(zap.DebugLevel) {
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelNone
}

// Log implements kgo.Logger.
func (l debugLogger) Log(level kgo.LogLevel, msg string, fields ...any) {
	l.log.Debugw(msg, append(fields, "kgo_level", level.String())...)
}

// check returns the error that stopped the sink earlier.
func (k *Kafka) check() error {
	if k.stopped != nil {
		return fmt.Errorf("the sink has stopped: %w", k.stopped)
	}
	return nil
}

// stop records the error that ends the sink's life. If ctx has ended, the cause
// says more than the error of the interrupted call.
func (k *Kafka) stop(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil && k.stopped == nil {
		k.stopped = err
	}
	return err
}
