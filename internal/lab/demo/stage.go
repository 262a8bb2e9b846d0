package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/orders"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgserver"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// Names of the demo's objects.
const (
	database   = "shop"
	topic      = "outbox.event." + orders.AggregateType // by the default route
	partitions = 3
)

// stage is the world around the connector.
type stage struct {
	postgres *pgserver.Server
	version  int // of PostgreSQL
	kafka    *kfake.Cluster
	brokers  []string
	shop     *pgx.Conn // the order service's connection
	config   config.Config
}

// setUp builds the stage, or nothing.
func setUp(ctx context.Context, show *screen) (_ *stage, err error) {
	s := &stage{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := s.startPostgres(ctx, show); err != nil {
		return nil, err
	}
	s.kafka, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topic))
	if err != nil {
		return nil, fmt.Errorf("start the Kafka broker: %w", err)
	}
	s.brokers = s.kafka.ListenAddrs()
	show.step("a Kafka broker in this process, on " + s.brokers[0])
	return s, s.configure()
}

// startPostgres starts the server and creates the service's tables.
func (s *stage) startPostgres(ctx context.Context, show *screen) error {
	bin, err := pgserver.Ensure(ctx, show.progress())
	if err != nil {
		return err
	}
	if s.version, err = pgserver.Version(bin); err != nil {
		return err
	}
	if s.postgres, err = pgserver.Start(ctx, pgserver.Options{BinDir: bin, Durable: true}); err != nil {
		return err
	}
	show.step(fmt.Sprintf("PostgreSQL %d from %s", s.version, bin))
	if err := s.createDatabase(ctx); err != nil {
		return fmt.Errorf("create the database: %w", err)
	}
	if s.shop, err = pgx.Connect(ctx, s.postgres.URL(database)); err != nil {
		return err
	}
	return orders.CreateTables(ctx, s.shop)
}

func (s *stage) createDatabase(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.postgres.URL("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+database)
	return errors.Join(err, conn.Close(ctx))
}

// configure writes the connector's configuration: the defaults, and where to
// find the two servers.
func (s *stage) configure() error {
	http, err := freeport.TakeAddress()
	if err != nil {
		return err
	}
	s.config = config.Default()
	s.config.Source.URL = setting.Secret(s.postgres.URL(database))
	s.config.Sink.Kafka.Brokers = s.brokers
	s.config.HTTP.Listen = http
	s.config.Log.Level = "warn"
	s.config.Log.Format = "console"
	return nil
}

// awaitStreaming returns once the connector reads the slot. Rows committed
// earlier would not be published: the slot begins at its creation.
func (s *stage) awaitStreaming(ctx, failed context.Context) error {
	limited, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	err := await.Ready(limited, failed.Done(), func(ctx context.Context) error {
		var active bool
		err := s.shop.QueryRow(ctx,
			"SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND active AND confirmed_flush_lsn IS NOT NULL)",
			s.config.Source.Slot).Scan(&active)
		if err == nil && !active {
			err = errors.New("the connector does not read its replication slot")
		}
		return err
	})
	return cmp.Or(ctx.Err(), err)
}

// write runs the order service until it committed the number of events, for 0
// until ctx ends. write waits after each transaction.
func (s *stage) write(ctx context.Context, events int, wait time.Duration, changes chan<- change) error {
	service := &orders.Service{DB: s.shop, RollbackEvery: rollbackEvery}
	for committed := 0; events == 0 || committed < events; {
		// A transaction under way is finished also when the demo is to end: the
		// outcome would otherwise be unknown.
		c, err := service.Step(context.WithoutCancel(ctx))
		if err != nil {
			return fmt.Errorf("order service: %w", err)
		}
		if !c.RolledBack {
			committed++
		}
		select {
		case changes <- change{Change: c, at: time.Now()}:
		case <-ctx.Done():
			return nil
		}
		if wait > 0 && backoff.Sleep(ctx, wait) != nil {
			return nil
		}
	}
	return nil
}

// close removes whatever was set up.
func (s *stage) close() error {
	var errs []error
	if s.shop != nil {
		ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
		defer cancel()
		errs = append(errs, s.shop.Close(ctx))
	}
	if s.kafka != nil {
		s.kafka.Close()
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.Close())
	}
	return errors.Join(errs...)
}
