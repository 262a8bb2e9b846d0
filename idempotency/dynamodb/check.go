package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// Check implements storage.Checker for the table.
func (s *Store) Check(ctx context.Context) ([]storage.Problem, error) {
	return check(ctx, s.client, s.table)
}

func check(ctx context.Context, client Client, table string) ([]storage.Problem, error) {
	out, err := client.DescribeTable(ctx, &sdk.DescribeTableInput{TableName: &table})
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
		return []storage.Problem{{
			Fatal: true, Text: "the table does not exist in this account and region",
			Remedy: commands(table),
		}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("check table %s: %w", table, explain(err, table))
	}
	ttl, err := client.DescribeTimeToLive(ctx, &sdk.DescribeTimeToLiveInput{TableName: &table})
	if err != nil {
		return nil, fmt.Errorf("check time to live of table %s: %w", table, explain(err, table))
	}
	var problems []storage.Problem
	for _, p := range []*storage.Problem{
		checkStatus(out.Table), checkKey(out.Table, table), checkReplicas(out.Table), checkTTL(ttl.TimeToLiveDescription, table),
	} {
		if p != nil {
			problems = append(problems, *p)
		}
	}
	return problems, nil
}

func checkStatus(t *types.TableDescription) *storage.Problem {
	switch t.TableStatus {
	case types.TableStatusActive, types.TableStatusUpdating:
		return nil
	}
	return &storage.Problem{
		Fatal: true, Text: fmt.Sprintf("the table's status is %s", t.TableStatus),
		Remedy: "wait until it is ACTIVE; look at the key of its encryption if it does not become so",
	}
}

func checkKey(t *types.TableDescription, table string) *storage.Problem {
	var is []string
	for _, k := range t.KeySchema {
		typ := "?"
		for _, a := range t.AttributeDefinitions {
			if aws.ToString(a.AttributeName) == aws.ToString(k.AttributeName) {
				typ = string(a.AttributeType)
			}
		}
		is = append(is, fmt.Sprintf("%s %s (%s)", aws.ToString(k.AttributeName), k.KeyType, typ))
	}
	const want = attrKey + " HASH (S)"
	if has := strings.Join(is, ", "); has != want {
		return &storage.Problem{
			Fatal: true, Text: fmt.Sprintf("the table's key is %s; it must be %s", has, want),
			Remedy: "a table's key cannot be changed: make another table\n" + commands(table+"-2"),
		}
	}
	return nil
}

// checkReplicas warns of global tables of the usual kind.
func checkReplicas(t *types.TableDescription) *storage.Problem {
	if len(t.Replicas) == 0 || t.MultiRegionConsistency == types.MultiRegionConsistencyStrong {
		return nil
	}
	var regions []string
	for _, r := range t.Replicas {
		regions = append(regions, aws.ToString(r.RegionName))
	}
	return &storage.Problem{
		Text: fmt.Sprintf("the table has replicas (%s) that are written independently and reconciled later, "+
			"the last writer winning: two regions can claim one key", strings.Join(regions, ", ")),
		Remedy: "let all consumers of a scope, and those that take over from them, use one region; " +
			"or use a global table with multi-Region strong consistency",
	}
}

func checkTTL(ttl *types.TimeToLiveDescription, table string) *storage.Problem {
	name := quoted(table)
	switch {
	case ttl != nil && ttl.AttributeName != nil && *ttl.AttributeName != attrTTL:
		return &storage.Problem{
			Text: fmt.Sprintf("time to live is by attribute %s instead of %s: forgotten keys stay and are paid for", *ttl.AttributeName, attrTTL),
			Remedy: "aws dynamodb update-time-to-live --table-name " + name +
				" --time-to-live-specification Enabled=false,AttributeName=" + *ttl.AttributeName +
				"\nand after an hour\n" + ttlCommand(name),
		}
	case ttl != nil && (ttl.TimeToLiveStatus == types.TimeToLiveStatusEnabled || ttl.TimeToLiveStatus == types.TimeToLiveStatusEnabling):
		return nil
	default:
		return &storage.Problem{
			Text:   "time to live is off: forgotten keys stay and are paid for",
			Remedy: ttlCommand(name),
		}
	}
}
