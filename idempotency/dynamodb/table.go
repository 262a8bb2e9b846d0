package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Patience with a table's creation, and the pause between two looks.
const (
	createTimeout = 5 * time.Minute
	createMinPoll = 50 * time.Millisecond
	createMaxPoll = 2 * time.Second
)

// CreateTable creates the table, billed on demand, waits until the table is
// usable and switches the time to live on; an existing table stays. CreateTable
// fails if the table then cannot be used. Schema does the same by hand.
func (s *Store) CreateTable(ctx context.Context) error {
	client, table := s.client, s.table
	_, err := client.CreateTable(ctx, &sdk.CreateTableInput{
		TableName:            &table,
		BillingMode:          types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String(attrKey), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String(attrKey), KeyType: types.KeyTypeHash}},
	})
	if _, exists := errors.AsType[*types.ResourceInUseException](err); err != nil && !exists {
		return fmt.Errorf("create table %s: %w", table, explain(err, table))
	}
	waiter := sdk.NewTableExistsWaiter(client, func(o *sdk.TableExistsWaiterOptions) {
		o.MinDelay, o.MaxDelay = createMinPoll, createMaxPoll
	})
	if err := waiter.Wait(ctx, &sdk.DescribeTableInput{TableName: &table}, createTimeout); err != nil {
		return fmt.Errorf("await table %s: %w", table, explain(err, table))
	}
	if err := enableTTL(ctx, client, table); err != nil {
		return fmt.Errorf("switch on time to live of table %s: %w", table, explain(err, table))
	}
	problems, err := s.Check(ctx)
	if err != nil {
		return err
	}
	for _, p := range problems {
		if p.Fatal {
			return fmt.Errorf("table %s: %s: %s", table, p.Text, p.Remedy)
		}
	}
	return nil
}

// enableTTL leaves another attribute's time to live alone: Check tells of it.
func enableTTL(ctx context.Context, client Client, table string) error {
	out, err := client.DescribeTimeToLive(ctx, &sdk.DescribeTimeToLiveInput{TableName: &table})
	if err != nil {
		return err
	}
	if d := out.TimeToLiveDescription; d != nil && d.AttributeName != nil {
		return nil
	}
	_, err = client.UpdateTimeToLive(ctx, &sdk.UpdateTimeToLiveInput{
		TableName:               &table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String(attrTTL), Enabled: aws.Bool(true)},
	})
	return err
}

// Schema returns the AWS CLI's commands for the table, for a POSIX shell.
func Schema(o Options) (string, error) {
	if o.Table == "" {
		return "", errNoTable
	}
	return commands(o.Table), nil
}

func commands(table string) string {
	name := quoted(table)
	return strings.Join([]string{
		"aws dynamodb create-table --table-name " + name + " --billing-mode PAY_PER_REQUEST \\",
		"  --attribute-definitions AttributeName=" + attrKey + ",AttributeType=S \\",
		"  --key-schema AttributeName=" + attrKey + ",KeyType=HASH",
		"aws dynamodb wait table-exists --table-name " + name,
		ttlCommand(name),
		"",
	}, "\n")
}

// quoted quotes a name for a shell. A table's has no character the quotes would
// not hold.
func quoted(table string) string { return "'" + table + "'" }

func ttlCommand(name string) string {
	return "aws dynamodb update-time-to-live --table-name " + name +
		" --time-to-live-specification Enabled=true,AttributeName=" + attrTTL
}
