package idempotency_test

import (
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

// Missing parts are missed where given, not at the first message.
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
		"dynamodb":           func() (any, error) { return dynamostore.New(noDynamo, dynamostore.Options{Table: "keys"}) },
		"dynamodb, no table": func() (any, error) { return dynamostore.New(&dynamodb.Client{}, dynamostore.Options{Table: ""}) },
		"window's store": func() (any, error) {
			return memory.Layer(noStore, memory.NewWindow(memory.WindowOptions{}), memory.LayerOptions{})
		},
		"window": func() (any, error) {
			return memory.Layer(memory.New(memory.Options{}), nil, memory.LayerOptions{})
		},
		"processor": func() (any, error) {
			return idempotency.New(idempotency.Options{Store: noStore, MaxAttempts: -1})
		},
	} {
		if _, err := open(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
