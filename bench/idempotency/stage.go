package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency/memory"
	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redisserver"
)

// stage holds everything measured, and the servers. Close the stage after use.
type stage struct {
	subjects []subject
	notes    []string // for the report
	closers  []func()
}

// starters start a store's server and add the subjects.
var starters = map[string]func(context.Context, *stage, options) error{
	"redis": startRedis, "postgres": startPostgres, "dynamodb": startDynamoDB,
}

func (s *stage) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// add adds a subject; roundTrip is the bare client's.
func (s *stage) add(name string, roundTrip call, calls [phases]call) {
	calls[bare] = roundTrip
	s.subjects = append(s.subjects, subject{name: name, calls: calls})
}

// onClose has f called by close; the last first.
func (s *stage) onClose(f func()) { s.closers = append(s.closers, f) }

func (s *stage) close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
}

func (s *stage) addMemory() {
	s.add("memory alone", nil, ofStore(memory.New(memory.Options{})))
}

// redisServer starts a server as durable as the store's documentation asks for. more,
// further settings, may be nil.
func redisServer(ctx context.Context, s *stage, more map[string]string) (addr string, err error) {
	program, err := redisserver.Ensure(ctx, os.Stderr)
	if err != nil {
		return "", err
	}
	settings := map[string]string{"appendonly": "yes", "appendfsync": "everysec"}
	maps.Copy(settings, more)
	server, err := redisserver.Start(ctx, redisserver.Options{Program: program, Settings: settings})
	if err != nil {
		return "", err
	}
	s.onClose(func() { _ = server.Close() })
	return server.Addr(), nil
}

func startRedis(ctx context.Context, s *stage, o options) error {
	addr, err := redisServer(ctx, s, nil)
	if err != nil {
		return err
	}
	client := goredis.NewClient(&goredis.Options{Addr: addr, PoolSize: max(o.workers, 2), MinIdleConns: o.workers})
	s.onClose(func() { _ = client.Close() })
	store, err := redis.New(client, redis.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	version := client.InfoMap(ctx, "server").Item("Server", "redis_version")
	s.note("Redis %s, appendonly yes, appendfsync everysec, TCP loopback; bare: SET NX", version)
	setNX := func(ctx context.Context, m *message) error {
		return client.SetNX(ctx, "bare:"+m.Key.ID, stored, retention).Err()
	}
	s.add("Redis", setNX, ofStore(store))
	windowed, err := behindWindow(store)
	if err != nil {
		return err
	}
	s.add("Redis, window in front", setNX, windowed)
	return nil
}

// machine describes the machine and the time of the measurement.
func machine() string {
	return fmt.Sprintf("%d CPUs (%s/%s, %s), %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(),
		time.Now().UTC().Format(time.DateOnly))
}
