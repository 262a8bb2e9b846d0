package idempotency_test

import (
	"context"
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/jackc/pgx/v5/pgxpool"
	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	dynamostore "github.com/cdc-outbox/cdc-outbox/idempotency/dynamodb"
	"github.com/cdc-outbox/cdc-outbox/idempotency/memory"
	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
)

// What is missing is missed where it is given, not when the first message comes.
func TestNothingIsMadeOfNil(t *testing.T) {
	var (
		noRedis  *goredis.Client
		noPool   *pgxpool.Pool
		noDynamo *dynamodb.Client
		noStore  *memory.Store
	)
	for name, open := range map[string]func() (any, error){
		"redis":         func() (any, error) { return redis.New(noRedis, redis.Options{}) },
		"redis, nil":    func() (any, error) { return redis.New(nil, redis.Options{}) },
		"postgres":      func() (any, error) { return postgres.New(noPool, postgres.Options{}) },
		"postgres, nil": func() (any, error) { return postgres.New(nil, postgres.Options{}) },
		"transactional": func() (any, error) {
			return postgres.NewTransactional(noPool, postgres.Options{})
		},
		"dynamodb":           func() (any, error) { return dynamostore.New(noDynamo, "keys", dynamostore.Options{}) },
		"dynamodb, no table": func() (any, error) { return dynamostore.New(&dynamodb.Client{}, "", dynamostore.Options{}) },
		"window's store": func() (any, error) {
			return memory.Layer(noStore, memory.NewWindow(memory.WindowOptions{}), memory.LayerOptions{})
		},
		"window": func() (any, error) {
			return memory.Layer(memory.NewStore(memory.StoreOptions{}), nil, memory.LayerOptions{})
		},
		"processor": func() (any, error) {
			return idempotency.NewProcessor(idempotency.Options{Store: noStore, MaxAttempts: -1})
		},
	} {
		if _, err := open(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A handler that was given to another Runner says what is wrong, instead of
// panicking.
func TestThereIsNoTransactionWithoutTransactional(t *testing.T) {
	ctx := context.Background()
	tx := postgres.Tx(ctx)
	_, execErr := tx.Exec(ctx, "SELECT 1")
	_, queryErr := tx.Query(ctx, "SELECT 1")
	_, beginErr := tx.Begin(ctx)
	var n int
	for name, err := range map[string]error{
		"exec": execErr, "query": queryErr, "begin": beginErr,
		"row":   tx.QueryRow(ctx, "SELECT 1").Scan(&n),
		"batch": tx.SendBatch(ctx, nil).Close(), "commit": tx.Commit(ctx), "rollback": tx.Rollback(ctx),
	} {
		if !errors.Is(err, postgres.ErrNoTransaction) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if tx.Conn() != nil {
		t.Error("it has a connection")
	}
}
