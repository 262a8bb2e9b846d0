// Package keystore opens an idempotency store from a URL, for the operator's
// verbs.
//
// The clients log nothing: their errors come back, and are printed once.
//
// Non-goals: consumers; they bring a client of their own to the stores'
// packages.
package keystore

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/logging"
	"github.com/jackc/pgx/v5/pgxpool"
	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency/dynamodb"
	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// Store is what an operator works on. Close it after use.
type Store interface {
	storage.Store
	storage.Operator
	Close()
}

const forms = "redis://host:6379/0, rediss://…, redis://host:6379?cluster=true, postgres://user@host/database, " +
	"postgres://user@host/database?partitioned=true, dynamodb://?region=eu-west-1"

// Open opens the store the URL names; name is the table (postgres, dynamodb) or
// the prefix of the keys (redis), empty for the default. Open makes no call to
// the server where possible. Errors are of class failure.Config and show
// nothing of the URL, which may hold a password.
func Open(ctx context.Context, from, name string) (Store, error) {
	scheme, _, found := strings.Cut(from, "://")
	if !found {
		return nil, failure.Configf("write one of "+forms, "the store is not given as a URL")
	}
	switch scheme {
	case "redis", "rediss":
		return openRedis(from, name)
	case "postgres", "postgresql":
		return openPostgres(ctx, from, name)
	case "dynamodb":
		return openDynamoDB(ctx, from, name)
	}
	return nil, failure.Configf("write one of "+forms, "there is no store of that kind")
}

// opened is a store with the client.
type opened struct {
	storage.Store
	storage.Operator
	close func()
}

func (o opened) Close() { o.close() }

// Sweeper is a Store without automatic removal of forgotten records.
type Sweeper interface {
	// Sweep removes them, and returns how many.
	Sweep(ctx context.Context, batch int) (int, error)
}

// sweepable is a Store and a Sweeper.
type sweepable struct {
	opened
	Sweeper
}

func openRedis(from, prefix string) (Store, error) {
	goredis.SetLogger(silent{})
	client, err := redisClient(from)
	if err != nil {
		return nil, failure.Configf("write redis://user:password@host:6379/0, or redis://host:6379?cluster=true", "the store's URL is not one of Redis")
	}
	store, err := redis.New(client, redis.Options{Prefix: prefix})
	if err != nil {
		return nil, errors.Join(failure.Configf("correct the option", "open the Redis store: %w", err), client.Close())
	}
	return opened{store, store, func() {
		store.Close()
		_ = client.Close()
	}}, nil
}

// silent is a logger for go-redis.
type silent struct{}

// Printf implements go-redis's logger.
func (silent) Printf(context.Context, string, ...any) {}

// take removes a switch of ours, unknown to the client, from the URL, and
// returns whether the switch is on.
func take(from, name string) (rest string, on bool, err error) {
	parsed, err := url.Parse(from)
	if err != nil {
		return "", false, err
	}
	query := parsed.Query()
	on = query.Get(name) == "true"
	query.Del(name)
	parsed.RawQuery = query.Encode()
	return parsed.String(), on, nil
}

func redisClient(from string) (goredis.UniversalClient, error) {
	from, cluster, err := take(from, "cluster")
	if err != nil {
		return nil, err
	}
	if cluster {
		opts, err := goredis.ParseClusterURL(from)
		if err != nil {
			return nil, err
		}
		return goredis.NewClusterClient(opts), nil
	}
	opts, err := goredis.ParseURL(from)
	if err != nil {
		return nil, err
	}
	return goredis.NewClient(opts), nil
}

func openPostgres(ctx context.Context, from, table string) (Store, error) {
	from, partitioned, err := take(from, "partitioned")
	if err != nil {
		return nil, failure.Configf("write postgres://user:password@host:5432/database; percent-encode special characters", "the store's URL is not one of PostgreSQL")
	}
	cfg, err := pgxpool.ParseConfig(from)
	if err != nil {
		return nil, failure.Configf("write postgres://user:password@host:5432/database", "the store's URL is not one of PostgreSQL")
	}
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, failure.Configf("correct the URL", "open the PostgreSQL store: %w", err)
	}
	store, err := postgres.New(pool, postgres.Options{Table: table, Partitioned: partitioned})
	if err != nil {
		pool.Close()
		return nil, failure.Configf("correct the option", "open the PostgreSQL store: %w", err)
	}
	return sweepable{opened{store, store, pool.Close}, store}, nil
}

// defaultTable is the table in DynamoDB unless another is named.
const defaultTable = "idempotency"

func openDynamoDB(ctx context.Context, from, table string) (Store, error) {
	parsed, err := url.Parse(from)
	if err != nil {
		return nil, failure.Configf("write dynamodb://?region=eu-west-1", "the store's URL is not one of DynamoDB")
	}
	if table == "" {
		table = defaultTable
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithRegion(parsed.Query().Get("region")),
		awsconfig.WithLogger(logging.Nop{}))
	if err != nil {
		return nil, failure.Configf("set AWS_REGION and credentials as for the AWS CLI", "read the AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		return nil, failure.Configf("write dynamodb://?region=eu-west-1, or set AWS_REGION", "no AWS region is given")
	}
	client := sdk.NewFromConfig(cfg, func(o *sdk.Options) {
		if endpoint := parsed.Query().Get("endpoint"); endpoint != "" {
			o.BaseEndpoint = aws.String(endpoint)
		}
	})
	store, err := dynamodb.New(client, dynamodb.Options{Table: table})
	if err != nil {
		return nil, failure.Configf("correct the option", "open the DynamoDB store: %w", err)
	}
	return opened{store, store, func() {}}, nil
}
