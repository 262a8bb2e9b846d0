package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/usercode"
)

// The defaults of Config.
const (
	defaultConcurrency        = 16
	defaultMaxBufferedRecords = 1000
	defaultMaxBufferedBytes   = 8 << 20
	defaultCommitInterval     = time.Second
	defaultRevokeTimeout      = 20 * time.Second
	defaultDrainTimeout       = 20 * time.Second
	defaultBackoffFirst       = 100 * time.Millisecond
	defaultBackoffLongest     = 30 * time.Second
)

// Config is a Consumer's configuration.
type Config struct {
	// Brokers, Group and Topics are required. With kgo.ConsumeRegex among the
	// Options, Topics are regular expressions.
	Brokers []string
	Group   string
	Topics  []string
	// Options go to the Kafka client: TLS, SASL, balancers (cooperative-sticky by
	// default), static membership, fetch sizes and so on. Before them the
	// isolation level is set to read_committed, and FetchMaxWait to half a second.
	// The group's callbacks, the rebalance timeout and everything about offsets,
	// commits and polling are the consumer's; options for these have no effect,
	// except ConsumeResetOffset.
	Options []kgo.Opt

	// Once makes Handler act once. Once.Runner and Handler are required;
	// Once.Scope is Group if empty.
	Once    Once
	Handler Handler
	// Middleware wraps the guarded handler, the first outermost.
	Middleware []func(Process) Process
	// MiddlewareKeepsRecords says that the middlewares hand on each record as
	// is: the same *kgo.Record, with all that Once.ID and Once.Fingerprint read.
	// Then a message can be claimed during the completion of the message before,
	// and before the middlewares have seen it. A changed message would be known
	// with another payload, and become a dead letter.
	MiddlewareKeepsRecords bool

	// KeyOrder: records with the same Kafka key in a partition are handled one
	// after another, and so are those without a key. Otherwise all of a
	// partition are.
	KeyOrder bool
	// Concurrency is how many records are handled at once, of different partitions
	// or, with KeyOrder, keys. With postgres.Transactional each of them takes a
	// connection of the pool; with one more in the pool, a message spares the next
	// a round trip. Default: 16.
	Concurrency int
	// MaxBufferedRecords and MaxBufferedBytes bound everything taken on of each
	// partition before the first of it is finished. Records beyond that wait,
	// and no more is fetched of the partition: a fetch of it is bounded by the
	// client's option FetchMaxPartitionBytes, or by the size of a single batch;
	// the client's own reading ahead by FetchMaxBytes and MaxConcurrentFetches.
	// Defaults: 1000 and 8 MiB.
	MaxBufferedRecords int
	MaxBufferedBytes   int

	// CommitInterval is the time between commits. Everything handled since the
	// last one is delivered, and skipped, again after a crash. Default: a
	// second.
	CommitInterval time.Duration
	// RevokeTimeout is how long handlers may go on when their partition is taken
	// away, before their contexts end; then they are waited for as long again. The
	// group's rebalance timeout is three times as long, which leaves a third for
	// the commit. Default: 20 s.
	RevokeTimeout time.Duration
	// DrainTimeout is how long handlers may go on when Run is to stop.
	// Default: 20 s.
	DrainTimeout time.Duration
	// BackoffFirst and BackoffLongest space the attempts at a record where the
	// result has no Wait, or the store is unavailable. Defaults: 100 ms and 30 s.
	BackoffFirst   time.Duration
	BackoffLongest time.Duration

	// RequireTopics makes a missing topic an error. Otherwise Run waits for the
	// topic.
	RequireTopics bool

	// Logger defaults to slog.Default().
	Logger *slog.Logger
	// Observer is optional.
	Observer Observer

	retention time.Duration // the Runner's, 0 if unknown
}

// complete fills in the defaults and checks the result.
func (c *Config) complete() error {
	c.Concurrency = cmp.Or(c.Concurrency, defaultConcurrency)
	c.MaxBufferedRecords = cmp.Or(c.MaxBufferedRecords, defaultMaxBufferedRecords)
	c.MaxBufferedBytes = cmp.Or(c.MaxBufferedBytes, defaultMaxBufferedBytes)
	c.CommitInterval = cmp.Or(c.CommitInterval, defaultCommitInterval)
	c.RevokeTimeout = cmp.Or(c.RevokeTimeout, defaultRevokeTimeout)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, defaultDrainTimeout)
	c.BackoffFirst = cmp.Or(c.BackoffFirst, defaultBackoffFirst)
	c.BackoffLongest = cmp.Or(c.BackoffLongest, max(c.BackoffFirst, defaultBackoffLongest))
	c.Once.Scope = cmp.Or(c.Once.Scope, c.Group)
	if r, ok := c.Once.Runner.(interface{ Retention() time.Duration }); ok && !usercode.IsNil(r) {
		c.retention = r.Retention()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	var errs []error
	demand := func(ok bool, text string, values ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(text, values...))
		}
	}
	demand(len(c.Brokers) > 0, "Brokers is empty")
	demand(c.Group != "", "Group is empty")
	demand(len(c.Topics) > 0, "Topics is empty")
	demand(c.Concurrency > 0, "Concurrency %d is not positive", c.Concurrency)
	demand(c.MaxBufferedRecords > 0, "MaxBufferedRecords %d is not positive", c.MaxBufferedRecords)
	demand(c.MaxBufferedBytes > 0, "MaxBufferedBytes %d is not positive", c.MaxBufferedBytes)
	demand(c.CommitInterval > 0, "CommitInterval %v is not positive", c.CommitInterval)
	demand(c.RevokeTimeout > 0, "RevokeTimeout %v is not positive", c.RevokeTimeout)
	demand(c.DrainTimeout > 0, "DrainTimeout %v is not positive", c.DrainTimeout)
	demand(c.BackoffFirst > 0, "BackoffFirst %v is not positive", c.BackoffFirst)
	demand(c.BackoffLongest >= c.BackoffFirst, "BackoffLongest %v is shorter than BackoffFirst %v", c.BackoffLongest, c.BackoffFirst)
	for i, m := range c.Middleware {
		demand(m != nil, "Middleware[%d] is nil", i)
	}
	return errors.Join(errs...)
}

// process is the guarded handler within the middlewares.
func (c *Config) process() (Process, error) {
	process, err := c.Once.protect(c.Handler)
	if err != nil {
		return nil, err
	}
	for i := len(c.Middleware) - 1; i >= 0; i-- {
		process = c.Middleware[i](process)
	}
	return process, nil
}

// options are the client's.
func (c *Config) options() []kgo.Opt {
	opts := []kgo.Opt{kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(fetchMaxWait)}
	opts = append(opts, c.Options...)
	return append(opts,
		kgo.SeedBrokers(c.Brokers...),
		kgo.ConsumerGroup(c.Group),
		kgo.ConsumeTopics(c.Topics...),
		kgo.RebalanceTimeout(3*c.RevokeTimeout),
		kgo.DisableAutoCommit(),
		kgo.KeepControlRecords(),
		kgo.BlockRebalanceOnPoll(),
	)
}
