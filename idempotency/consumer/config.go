package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/isnil"
)

// Order says which records must be handled one after another.
type Order uint8

// The orders.
const (
	// PartitionOrder: those of a partition.
	PartitionOrder Order = iota
	// KeyOrder: those of a partition that have the same Kafka key. Those
	// without a key are of one.
	KeyOrder
)

// Defaults.
const (
	DefaultConcurrency        = 8
	DefaultMaxBufferedRecords = 1000
	DefaultMaxBufferedBytes   = 8 << 20
	DefaultCommitInterval     = time.Second
	DefaultRevokeTimeout      = 20 * time.Second
	DefaultDrainTimeout       = 20 * time.Second
	DefaultBackoffFirst       = 100 * time.Millisecond
	DefaultBackoffLongest     = 30 * time.Second
)

// Config is what a Consumer is made of.
type Config struct {
	// Brokers, Group and Topics are required. With kgo.ConsumeRegex among the
	// Options, Topics are regular expressions.
	Brokers []string
	Group   string
	Topics  []string
	// Options go to the Kafka client: TLS, SASL, balancers (cooperative-sticky
	// by default), static membership, fetch sizes and so on. Before them the
	// isolation level is set to read_committed, and FetchMaxWait to half a
	// second. The group's callbacks, its
	// rebalance timeout and everything about commits and polling are the
	// consumer's; options for these have no effect.
	Options []kgo.Opt

	// Guard makes Handler idempotent; both are required. Its Scope is Group if
	// empty.
	Guard   Guard
	Handler Handler
	// Middleware wraps the guarded handler, the first one outermost.
	Middleware []func(Process) Process

	// Order is PartitionOrder by default.
	Order Order
	// Concurrency is how many records are handled at once, of different
	// partitions or, with KeyOrder, keys. Default: DefaultConcurrency.
	Concurrency int
	// MaxBufferedRecords and MaxBufferedBytes bound what is taken on of each
	// partition before the first of it is finished. What a fetch brings beyond
	// waits, and no more is fetched of the partition: a fetch of it is bounded
	// by the client's option FetchMaxPartitionBytes, or by the size of one
	// batch; what the client itself fetches ahead by FetchMaxBytes and
	// MaxConcurrentFetches. Defaults: DefaultMaxBufferedRecords and
	// DefaultMaxBufferedBytes.
	MaxBufferedRecords int
	MaxBufferedBytes   int

	// CommitInterval is the time between commits. What was handled since the
	// last one is delivered, and skipped, again after a crash. Default:
	// DefaultCommitInterval.
	CommitInterval time.Duration
	// RevokeTimeout is how long handlers may go on when their partition is
	// taken away, before their contexts end; then they are waited for as long
	// again. The group's rebalance timeout is three times as long, so that
	// there is a third for the commit. Default: DefaultRevokeTimeout.
	RevokeTimeout time.Duration
	// DrainTimeout is how long handlers may go on when Run is to stop.
	// Default: DefaultDrainTimeout.
	DrainTimeout time.Duration
	// BackoffFirst and BackoffLongest space the attempts at a record where the
	// result has no Wait, and those at an unavailable store. Defaults:
	// DefaultBackoffFirst and DefaultBackoffLongest.
	BackoffFirst   time.Duration
	BackoffLongest time.Duration

	// Retention is how long the Runner keeps completed keys. Topics whose
	// records can be replayed for longer are warned of. Default: what the
	// Runner's method Retention returns, if it has one, and no other value is
	// taken then; none, no warnings.
	Retention time.Duration
	// RequireTopics makes a missing topic an error. Otherwise it is waited for.
	RequireTopics bool

	// Logger defaults to slog.Default().
	Logger *slog.Logger
	// Observer is optional.
	Observer Observer

	scopeInterval time.Duration // between two looks at the scope
}

// complete fills in the defaults and checks the result.
func (c *Config) complete() error {
	c.Concurrency = cmp.Or(c.Concurrency, DefaultConcurrency)
	c.MaxBufferedRecords = cmp.Or(c.MaxBufferedRecords, DefaultMaxBufferedRecords)
	c.MaxBufferedBytes = cmp.Or(c.MaxBufferedBytes, DefaultMaxBufferedBytes)
	c.CommitInterval = cmp.Or(c.CommitInterval, DefaultCommitInterval)
	c.RevokeTimeout = cmp.Or(c.RevokeTimeout, DefaultRevokeTimeout)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	c.BackoffFirst = cmp.Or(c.BackoffFirst, DefaultBackoffFirst)
	c.BackoffLongest = cmp.Or(c.BackoffLongest, max(c.BackoffFirst, DefaultBackoffLongest))
	c.scopeInterval = cmp.Or(c.scopeInterval, defaultScopeInterval)
	c.Guard.Scope = cmp.Or(c.Guard.Scope, c.Group)
	var kept time.Duration
	if r, ok := c.Guard.Runner.(interface{ Retention() time.Duration }); ok && !isnil.Value(r) {
		kept = r.Retention()
		c.Retention = cmp.Or(c.Retention, kept)
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
	demand(c.Order <= KeyOrder, "Order %d is unknown", c.Order)
	demand(c.Concurrency > 0, "Concurrency %d is not positive", c.Concurrency)
	demand(c.MaxBufferedRecords > 0, "MaxBufferedRecords %d is not positive", c.MaxBufferedRecords)
	demand(c.MaxBufferedBytes > 0, "MaxBufferedBytes %d is not positive", c.MaxBufferedBytes)
	demand(c.CommitInterval > 0, "CommitInterval %v is not positive", c.CommitInterval)
	demand(c.RevokeTimeout > 0, "RevokeTimeout %v is not positive", c.RevokeTimeout)
	demand(c.DrainTimeout > 0, "DrainTimeout %v is not positive", c.DrainTimeout)
	demand(c.BackoffFirst > 0, "BackoffFirst %v is not positive", c.BackoffFirst)
	demand(c.BackoffLongest >= c.BackoffFirst, "BackoffLongest %v is shorter than BackoffFirst %v", c.BackoffLongest, c.BackoffFirst)
	demand(c.Retention >= 0, "Retention %v is negative", c.Retention)
	demand(kept == 0 || c.Retention == kept, "Retention %v contradicts the Runner's, %v: leave it out", c.Retention, kept)
	for i, m := range c.Middleware {
		demand(m != nil, "Middleware[%d] is nil", i)
	}
	return errors.Join(errs...)
}

// process is the guarded handler within its middlewares.
func (c *Config) process() (Process, error) {
	process, err := c.Guard.Protect(c.Handler)
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
		kgo.BlockRebalanceOnPoll(),
	)
}
