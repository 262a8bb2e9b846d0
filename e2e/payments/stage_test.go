package payments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/cdc-outbox/cdc-outbox/idempotency/dynamodb"
	"github.com/cdc-outbox/cdc-outbox/idempotency/guard"
	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/dynamoserver"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgserver"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redisserver"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// stage holds the servers the three processes need. Close it after use.
type stage struct {
	postgres *pgserver.Server
	kafka    *kfake.Cluster
	redis    *redisserver.Server  // with inRedis
	dynamo   *dynamoserver.Server // with inDynamoDB
	storeURL string
	// redisKills counts how often Redis was killed.
	redisKills int
	say        func(format string, args ...any)
}

// setUp starts the servers and creates the tables.
func setUp(ctx context.Context, store storeKind, out io.Writer) (_ *stage, err error) {
	s := &stage{say: func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	bin, err := pgserver.Ensure(ctx, out)
	if err != nil {
		return nil, err
	}
	s.postgres, err = pgserver.Start(ctx, pgserver.Options{BinDir: bin})
	if err != nil {
		return nil, err
	}
	s.say("PostgreSQL from %s", bin)
	if err := s.createTables(ctx); err != nil {
		return nil, err
	}
	s.kafka, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, paymentsTopic, shipmentsTopic), kfake.SeedTopics(1, deadLettersTopic))
	if err != nil {
		return nil, err
	}
	s.say("a Kafka broker in this process, on %s", s.broker())
	switch store {
	case inRedis:
		err = s.startRedis(ctx, out)
	case inDynamoDB:
		err = s.startDynamoDB(ctx)
	}
	return s, err
}

func (s *stage) broker() string { return s.kafka.ListenAddrs()[0] }

func (s *stage) close() {
	if s.dynamo != nil {
		_ = s.dynamo.Close()
	}
	if s.redis != nil {
		_ = s.redis.Close()
	}
	if s.kafka != nil {
		s.kafka.Close()
	}
	if s.postgres != nil {
		_ = s.postgres.Close()
	}
}

// ordersTable has the status the order service changes.
const ordersTable = `CREATE TABLE orders (id int PRIMARY KEY, status text NOT NULL DEFAULT 'PENDING')`

// shipmentsTable would take an order twice: only the code before it forbids
// that.
const shipmentsTable = `CREATE TABLE shipments (order_id int NOT NULL, shipped_at timestamptz NOT NULL DEFAULT now())`

// createTables makes a database for each service, as if they were apart.
func (s *stage) createTables(ctx context.Context) error {
	keys, err := postgres.Schema(postgres.Options{})
	if err != nil {
		return err
	}
	for database, ddl := range map[string][]string{
		roleOrders:   {ordersTable, outbox.Schema, keys},
		roleShipping: {shipmentsTable, guard.Applied{}.Schema(), keys},
	} {
		if err := execute(ctx, s.postgres.URL("postgres"), "CREATE DATABASE "+database); err != nil {
			return err
		}
		if err := execute(ctx, s.postgres.URL(database), ddl...); err != nil {
			return err
		}
	}
	return nil
}

func execute(ctx context.Context, url string, statements ...string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	for _, sql := range statements {
		if _, err = conn.Exec(ctx, sql); err != nil {
			break
		}
	}
	return errors.Join(err, conn.Close(ctx))
}

// startRedis starts a Redis keeping nothing on disk: a kill loses all data.
func (s *stage) startRedis(ctx context.Context, out io.Writer) error {
	program, err := redisserver.Ensure(ctx, out)
	if err != nil {
		return err
	}
	s.redis, err = redisserver.Start(ctx, redisserver.Options{Program: program})
	if err != nil {
		return err
	}
	s.storeURL = s.redis.Addr()
	s.say("Redis without persistence, on %s", s.storeURL)
	return nil
}

// killRedis is kill -9, and an empty Redis.
func (s *stage) killRedis(ctx context.Context) error {
	if err := s.redis.Stop(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	s.redisKills++
	return s.redis.Resume(ctx)
}

// startDynamoDB starts DynamoDB Local (with Java 17 and, once, Maven).
func (s *stage) startDynamoDB(ctx context.Context) (err error) {
	if s.dynamo, err = dynamoserver.Start(ctx); err != nil {
		return err
	}
	s.storeURL = s.dynamo.Addr()
	s.say("DynamoDB Local, on %s", s.storeURL)
	store, err := dynamodb.New(dynamoClient(s.storeURL), dynamodb.Options{Table: dynamoTable})
	if err != nil {
		return err
	}
	return store.CreateTable(ctx)
}

// patience bounds each wait.
const patience = 2 * time.Minute

// await asks until the answer is yes.
func await(ctx context.Context, what string, met func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("waited for %s in vain", what))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := met(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
