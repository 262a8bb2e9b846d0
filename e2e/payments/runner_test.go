package payments

import (
	"context"
	"fmt"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/dynamodb"
	"github.com/cdc-outbox/cdc-outbox/idempotency/memory"
	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/dynamoserver"
)

// storeKind is the place of a consumer's memory of handled messages.
type storeKind string

const (
	inRedis    storeKind = "redis"
	inPostgres storeKind = "postgres"
	inDynamoDB storeKind = "dynamodb"
	inMemory   storeKind = "memory"
)

// lease is short, so a killed process is succeeded soon. Real consumers take
// half a minute or so.
const lease = 3 * time.Second

// newRunner returns the Processor that handles a message once.
func newRunner(o serviceOptions, pool *pgxpool.Pool, deadLetter func(context.Context, idempotency.DeadLetter) error) (*idempotency.Processor, error) {
	store, err := newStore(o, pool)
	if err != nil {
		return nil, err
	}
	return idempotency.New(idempotency.Options{Store: store, Lease: lease, DeadLetter: deadLetter, MaxAttempts: attempts, MaxVanished: attempts})
}

// attempts is generous: here each kill costs the message in hand one.
const attempts = 1000

func newStore(o serviceOptions, pool *pgxpool.Pool) (storage.Store, error) {
	switch o.store {
	case inPostgres:
		// The claim is a row in the service's own database. The handler's
		// writes commit with it: nothing can come between the two.
		return postgres.NewTransactional(pool, postgres.Options{})
	case inRedis:
		return redis.New(goredis.NewClient(&goredis.Options{Addr: o.storeURL}), redis.Options{})
	case inDynamoDB:
		return dynamodb.New(dynamoClient(o.storeURL), dynamodb.Options{Table: dynamoTable})
	case inMemory:
		// Forgotten whenever the process dies: the guard in the database is all
		// there is then.
		return memory.New(memory.Options{}), nil
	default:
		return nil, fmt.Errorf("no store %q", o.store)
	}
}

const dynamoTable = "idempotency"

func dynamoClient(address string) *sdk.Client { return dynamoserver.NewClient(address, nil) }

// inTx runs fn in the handler's transaction, if the runner has one, or in a
// separate one. guarded says that the message may be handled a second time,
// after a crash between this commit and the completion in the store, or because
// the store forgot it: fn must then recognise the repetition.
func inTx(ctx context.Context, pool *pgxpool.Pool, fn func(tx pgx.Tx, guarded bool) error) error {
	if tx := postgres.Tx(ctx); tx.Conn() != nil {
		return fn(tx, false)
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return fn(tx, true) })
}
