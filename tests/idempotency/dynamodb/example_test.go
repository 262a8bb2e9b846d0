package dynamodb_test

import (
	"context"
	"fmt"
	"log"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/cdc-outbox/cdc-outbox/idempotency/dynamodb"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/dynamotest"
)

// connect stands for the AWS SDK's config.LoadDefaultConfig and
// dynamodb.NewFromConfig.
func connect() *sdk.Client {
	client, _ := dynamotest.SharedClient() // TestMain skips the examples otherwise
	return client
}

func Example() {
	ctx, client := context.Background(), connect()
	store, err := dynamodb.New(client, dynamodb.Options{Table: "idempotency"})
	if err != nil {
		log.Fatal(err)
	}
	if err := store.CreateTable(ctx); err != nil {
		log.Fatal(err)
	}
	key := storage.Key{Scope: "shipping", ID: "0199a0c2-7e57-7bbb-8000-000000000001"}
	for range 2 { // the message is delivered twice
		claim, err := store.Claim(ctx, key, storage.ClaimRequest{
			Owner: storage.NewOwner(), Lease: 30 * time.Second, Retention: 24 * time.Hour,
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s, attempt %d, result %q\n", claim.Outcome, claim.Attempts, claim.Result)
		if claim.Outcome == storage.Claimed {
			if err := store.Complete(ctx, claim.Lease, []byte("parcel 7"), 14*24*time.Hour); err != nil {
				log.Fatal(err)
			}
		}
	}
	// Output:
	// claimed, attempt 1, result ""
	// duplicate, attempt 1, result "parcel 7"
}

func Example_storeCheck() {
	store, err := dynamodb.New(connect(), dynamodb.Options{Table: "not-there"})
	if err != nil {
		log.Fatal(err)
	}
	problems, err := store.Check(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range problems {
		fmt.Println(p.Text)
	}
	// Output: the table does not exist in this account and region
}

func Example_schema() {
	commands, err := dynamodb.Schema(dynamodb.Options{Table: "idempotency"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(commands)
	// Output:
	// aws dynamodb create-table --table-name 'idempotency' --billing-mode PAY_PER_REQUEST \
	//   --attribute-definitions AttributeName=pk,AttributeType=S \
	//   --key-schema AttributeName=pk,KeyType=HASH
	// aws dynamodb wait table-exists --table-name 'idempotency'
	// aws dynamodb update-time-to-live --table-name 'idempotency' --time-to-live-specification Enabled=true,AttributeName=ttl
}
