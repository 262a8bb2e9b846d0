package dynamodb_test

import (
	"context"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cdc-outbox/cdc-outbox/idempotency/dynamodb"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/dynamotest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestCreateTableLeavesNothingToCheck(t *testing.T) {
	client := dynamotest.Shared(t).Client(t)
	dropped(t, client, "created")
	for range 2 { // also where the table exists already
		if err := storeOf(t, client, "created").CreateTable(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	problems, err := storeOf(t, client, "created").Check(t.Context())
	if err != nil || len(problems) > 0 {
		t.Errorf("%+v, %v", problems, err)
	}
	claimed(t, must.Get(dynamodb.New(client, dynamodb.Options{Table: "created"}))(t), key("1"), "a")
}

func storeOf(t *testing.T, client dynamodb.Client, table string) *dynamodb.Store {
	t.Helper()
	return must.Get(dynamodb.New(client, dynamodb.Options{Table: table}))(t)
}

// dropped drops the table when the test ends.
func dropped(t *testing.T, client *sdk.Client, table string) {
	t.Helper()
	t.Cleanup(func() {
		if _, err := client.DeleteTable(context.Background(), &sdk.DeleteTableInput{TableName: &table}); err != nil {
			t.Error(err)
		}
	})
}

// created makes a table with another key than ours.
func created(t *testing.T, client *sdk.Client, name, attribute string, typ types.ScalarAttributeType) {
	t.Helper()
	_, err := client.CreateTable(t.Context(), &sdk.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &attribute, AttributeType: typ}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: &attribute, KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		t.Fatal(err)
	}
	dropped(t, client, name)
}

func TestCheckFindsProblems(t *testing.T) {
	client := dynamotest.Shared(t).Client(t)
	created(t, client, "other-name", "id", types.ScalarAttributeTypeS)
	created(t, client, "other-type", "pk", types.ScalarAttributeTypeB)
	created(t, client, "other-ttl", "pk", types.ScalarAttributeTypeS)
	_, err := client.UpdateTimeToLive(t.Context(), &sdk.UpdateTimeToLiveInput{
		TableName:               aws.String("other-ttl"),
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String("expires"), Enabled: aws.Bool(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	created(t, client, "no-ttl", "pk", types.ScalarAttributeTypeS)
	for table, want := range map[string]struct {
		fatal        bool
		text, remedy string
	}{
		"missing":    {true, "does not exist", "--table-name 'missing'"},
		"other-name": {true, "id HASH (S)", "create-table"},
		"other-type": {true, "pk HASH (B)", "create-table"},
		"other-ttl":  {false, "expires instead of ttl", "Enabled=false,AttributeName=expires"},
		"no-ttl":     {false, "is off", "Enabled=true,AttributeName=ttl"},
	} {
		problems, err := storeOf(t, client, table).Check(t.Context())
		if err != nil || len(problems) == 0 {
			t.Errorf("%s: %v, %v", table, problems, err)
			continue
		}
		p := problems[0]
		if p.Fatal != want.fatal || !strings.Contains(p.Text, want.text) || !strings.Contains(p.Remedy, want.remedy) {
			t.Errorf("%s: %+v", table, p)
		}
	}
	if err := storeOf(t, client, "other-name").CreateTable(t.Context()); err == nil || !strings.Contains(err.Error(), "id HASH (S)") {
		t.Errorf("CreateTable takes a table with another key: %v", err)
	}
}

// described answers as a table of kinds DynamoDB Local does not have.
type described struct {
	*sdk.Client
	change func(*types.TableDescription)
}

func (d described) DescribeTable(ctx context.Context, in *sdk.DescribeTableInput, o ...func(*sdk.Options)) (*sdk.DescribeTableOutput, error) {
	out, err := d.Client.DescribeTable(ctx, in, o...)
	if err == nil {
		d.change(out.Table)
	}
	return out, err
}

func TestCheckKnowsKindsOfTables(t *testing.T) {
	server := dynamotest.Shared(t)
	client, table := server.Client(t), server.Table(t)
	replicas := []types.ReplicaDescription{{RegionName: aws.String("eu-west-1")}}
	for name, c := range map[string]struct {
		change func(*types.TableDescription)
		want   string
		fatal  bool
	}{
		"global": {func(d *types.TableDescription) { d.Replicas = replicas }, "eu-west-1", false},
		"strongly consistent": {func(d *types.TableDescription) {
			d.Replicas, d.MultiRegionConsistency = replicas, types.MultiRegionConsistencyStrong
		}, "", false},
		"updating": {func(d *types.TableDescription) { d.TableStatus = types.TableStatusUpdating }, "", false},
		"key lost": {func(d *types.TableDescription) {
			d.TableStatus = types.TableStatusInaccessibleEncryptionCredentials
		}, "INACCESSIBLE_ENCRYPTION_CREDENTIALS", true},
	} {
		problems, err := storeOf(t, described{client, c.change}, table).Check(t.Context())
		switch {
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want == "" && len(problems) > 0:
			t.Errorf("%s: %+v; want none", name, problems)
		case c.want != "" && (len(problems) != 1 || problems[0].Fatal != c.fatal || !strings.Contains(problems[0].Text, c.want)):
			t.Errorf("%s: %+v; want one about %s", name, problems, c.want)
		}
	}
}
