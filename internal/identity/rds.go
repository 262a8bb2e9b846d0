package identity

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// emptyPayload is the hash of no content.
const emptyPayload = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// RDS returns a token to log in at an endpoint of RDS or Aurora, host:port, as a
// database's user. The token is good for new connections within 15 minutes,
// or to the end of the credentials. Several goroutines may use RDS.
func RDS(ctx context.Context, endpoint, user string) (Token, error) {
	region, err := rdsRegion(endpoint)
	if err != nil {
		return Token{}, err
	}
	credentials, err := AWS(ctx)
	if err != nil {
		return Token{}, err
	}
	now := time.Now()
	ends := now.Add(15 * time.Minute)
	if !credentials.Ends.IsZero() && credentials.Ends.Before(ends) {
		ends = credentials.Ends
	}
	value, err := rdsToken(ctx, credentials, endpoint, region, user, now)
	return Token{value, ends}, err
}

// rdsToken signs the request of a connection. The signature needs no network.
func rdsToken(ctx context.Context, c AWSCredentials, endpoint, region, user string, at time.Time) (string, error) {
	query := url.Values{"Action": {"connect"}, "DBUser": {user}, "X-Amz-Expires": {"900"}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+endpoint+"?"+query.Encode(), nil)
	if err != nil {
		return "", err
	}
	keys := aws.Credentials{AccessKeyID: c.AccessKey, SecretAccessKey: c.SecretKey, SessionToken: c.SessionToken}
	signed, _, err := v4.NewSigner().PresignHTTP(ctx, keys, request, emptyPayload, "rds-db", region, at.UTC())
	return strings.TrimPrefix(signed, "https://"), err
}

// rdsHost has the region of an endpoint.
var rdsHost = regexp.MustCompile(`\.([a-z0-9-]+)\.rds\.amazonaws\.com(\.cn)?:\d+$`)

func rdsRegion(endpoint string) (string, error) {
	if m := rdsHost.FindStringSubmatch(endpoint); m != nil {
		return m[1], nil
	}
	if region := cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")); region != "" {
		return region, nil
	}
	return "", failure.Configf("set AWS_REGION, or name the endpoint of RDS as host in source.url (its address may be in hostaddr)",
		"the AWS region of %s is not known", endpoint)
}
