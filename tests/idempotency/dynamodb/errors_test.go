package dynamodb_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/cdc-outbox/cdc-outbox/idempotency/dynamodb"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// quickly keeps the SDK's repetitions, but not the waits between them.
func quickly(o *sdk.Options) {
	o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) {
		o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
		o.RateLimiter = unlimited{}
	})
}

// unlimited lets the SDK repeat without a limit.
type unlimited struct{}

func (unlimited) GetToken(context.Context, uint) (func() error, error) {
	return func() error { return nil }, nil
}

func (unlimited) AddTokens(uint) error { return nil }

// refusal is an answer of DynamoDB with an error.
func refusal(r *http.Request, code string) *http.Response {
	body := fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":"no"}`, code)
	return &http.Response{
		StatusCode: http.StatusBadRequest, Request: r,
		Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}, "Date": {time.Now().UTC().Format(http.TimeFormat)}},
		Body:   io.NopCloser(strings.NewReader(body)),
	}
}

// offline returns a client with f's answer to every request.
func offline(f exchange, change ...func(*sdk.Options)) *sdk.Client {
	return sdk.New(sdk.Options{
		Region: "us-east-1", HTTPClient: f, Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	}, change...)
}

func TestErrorsTellWhatToDo(t *testing.T) {
	for code, want := range map[string]string{
		"ResourceNotFoundException":              "CreateTable",
		"ValidationException":                    "Check",
		"ProvisionedThroughputExceededException": "on-demand",
		"ThrottlingException":                    "on-demand",
		"RequestLimitExceeded":                   "account's limit",
		"AccessDeniedException":                  "UpdateItem",
		"UnrecognizedClientException":            "credentials",
		"ExpiredTokenException":                  "renews",
		"InvalidSignatureException":              "secret key",
		"MissingAuthenticationTokenException":    "no credentials",
		"ReplicatedWriteConflictException":       "another region",
	} {
		client := offline(func(r *http.Request) (*http.Response, error) { return refusal(r, code), nil })
		_, err := must.Get(dynamodb.New(client, dynamodb.Options{Table: "keys"}))(t).Claim(t.Context(), key("1"), request("a"))
		if err == nil || storage.Answered(err) {
			t.Errorf("%s: %v; want an error that is no answer", code, err)
			continue
		}
		for _, part := range []string{"claim shipping/1", code, want, "keys"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q is missing in: %v", code, part, err)
			}
		}
	}
}

func TestMissingCredentialsAreNamed(t *testing.T) {
	none := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{}, errors.New("nowhere to be found")
	})
	client := offline(nil, func(o *sdk.Options) { o.Credentials = none })
	_, err := must.Get(dynamodb.New(client, dynamodb.Options{Table: "keys"}))(t).Claim(t.Context(), key("1"), request("a"))
	if err == nil || !strings.Contains(err.Error(), "AWS_PROFILE") {
		t.Errorf("%v; want a hint at AWS_PROFILE", err)
	}
}

func TestContextEndsACall(t *testing.T) {
	client := offline(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := must.Get(dynamodb.New(client, dynamodb.Options{Table: "keys"}))(t).Claim(ctx, key("1"), request("a"))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v; want context.Canceled", err)
	}
}
