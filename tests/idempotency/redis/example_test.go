package redis_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redistest"
)

// connect returns a client of a throwaway server, in an empty database.
func connect() *goredis.Client {
	addr, err := redistest.SharedAddr()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	client := goredis.NewClient(&goredis.Options{Addr: addr, DB: 1, ReadTimeout: patience, ContextTimeoutEnabled: true})
	if err := client.FlushDB(context.Background()).Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return client
}

func Example() {
	ctx := context.Background()
	client := connect()
	defer client.Close()
	store, err := redis.New(client, redis.Options{Prefix: "example"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	key := storage.Key{Scope: "shipping", ID: "0197d2b4-7c1a-7e3e-9b1f-0123456789ab"}
	for range 2 { // the message arrives twice
		claim, err := store.Claim(ctx, key, storage.ClaimRequest{
			Owner:       storage.NewOwner(),
			Fingerprint: idempotency.FingerprintBytes([]byte(`{"order":"1"}`)),
			Lease:       30 * time.Second,
			Retention:   7 * 24 * time.Hour,
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		if claim.Outcome == storage.Duplicate {
			fmt.Printf("%s: %s\n", claim.Outcome, claim.Result)
			continue
		}
		fmt.Printf("%s, attempt %d\n", claim.Outcome, claim.Attempts)
		// Here the work is done.
		if err := store.Complete(ctx, claim.Lease, []byte("shipped"), 7*24*time.Hour); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// claimed, attempt 1
	// duplicate: shipped
}

func Example_storeCheck() {
	client := connect()
	defer client.Close()
	store, err := redis.New(client, redis.Options{Prefix: "example"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	problems, err := store.Check(context.Background())
	if err != nil {
		fmt.Println(err)
	}
	for _, p := range problems {
		_, text, _ := strings.Cut(p.Text, ": ") // after the server's address
		fmt.Println(text)
		fmt.Println("remedy:", p.Remedy)
	}
	// Output:
	// nothing is kept on disk (appendonly no, save ""): a restart forgets all keys, and their messages are run again
	// remedy: set appendonly to yes
}
