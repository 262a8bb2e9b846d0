package main

import (
	"context"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cdc-outbox/cdc-outbox/idempotency/dynamodb"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/dynamoserver"
)

func startDynamoDB(ctx context.Context, s *stage, o options) error {
	server, err := dynamoserver.Start(ctx)
	if err != nil {
		return err
	}
	s.onClose(func() { _ = server.Close() })
	transport := &http.Transport{MaxIdleConnsPerHost: o.workers}
	s.onClose(transport.CloseIdleConnections)
	client := dynamoserver.NewClient(server.Addr(), transport)
	const keys, others = "idempotency", "bare"
	for _, table := range []string{keys, others} {
		made, err := dynamodb.New(client, dynamodb.Options{Table: table})
		if err != nil {
			return err
		}
		if err := made.CreateTable(ctx); err != nil {
			return err
		}
	}
	s.note("DynamoDB Local in memory, TCP loopback; bare: PutItem if attribute_not_exists")
	put := func(ctx context.Context, m *message) error {
		_, err := client.PutItem(ctx, &sdk.PutItemInput{
			TableName:           aws.String(others),
			Item:                map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: m.Key.ID}},
			ConditionExpression: aws.String("attribute_not_exists(pk)"),
		})
		return err
	}
	store, err := dynamodb.New(client, dynamodb.Options{Table: keys})
	if err != nil {
		return err
	}
	s.add("DynamoDB Local", put, ofStore(store))
	windowed, err := behindWindow(store)
	if err != nil {
		return err
	}
	s.add("DynamoDB Local, window in front", put, windowed)
	return nil
}
