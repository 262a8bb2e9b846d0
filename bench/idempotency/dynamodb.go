package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cdc-outbox/cdc-outbox/idempotency/dynamodb"
	"github.com/cdc-outbox/cdc-outbox/internal/child"
)

// dynamoScript is found from the repository's root.
const dynamoScript = "scripts/dynamodb.sh"

// dynamoTimeout bounds the start of DynamoDB Local.
const dynamoTimeout = time.Minute

func startDynamoDB(ctx context.Context, s *stage, o options) error {
	if _, err := os.Stat(dynamoScript); err != nil {
		return errors.New(dynamoScript + " is not here: run this from the repository's root")
	}
	fetch := exec.CommandContext(ctx, dynamoScript, "fetch")
	fetch.Stderr = os.Stderr
	if err := fetch.Run(); err != nil {
		return fmt.Errorf("get DynamoDB Local: %w", err)
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.Command(dynamoScript, "run", port)
	cmd.SysProcAttr = child.Attributes(syscall.SIGKILL)
	server, err := child.Start(cmd)
	if err != nil {
		return err
	}
	s.onClose(func() { _ = server.Stop(context.Background(), syscall.SIGKILL) })
	if err := awaitListener(ctx, address); err != nil {
		return fmt.Errorf("start DynamoDB Local: %w", err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: o.workers}
	s.onClose(transport.CloseIdleConnections)
	client := sdk.New(sdk.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://" + address),
		Credentials: credentials.NewStaticCredentialsProvider("bench", "bench", ""), // any will do
		HTTPClient:  &http.Client{Transport: transport},
	})
	const keys, others = "idempotency", "bare"
	for _, table := range []string{keys, others} {
		if err := dynamodb.CreateTable(ctx, client, table); err != nil {
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
	store := dynamodb.New(client, keys, dynamodb.Options{})
	s.add("DynamoDB Local", put, ofStore(store))
	s.add("DynamoDB Local, window in front", put, behindWindow(store))
	return nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// awaitListener returns when something listens at the address.
func awaitListener(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, dynamoTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}
