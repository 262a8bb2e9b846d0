package identity

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/cloud"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

const (
	azureScope  = "https://ossrdbms-aad.database.windows.net/.default"
	googleScope = "https://www.googleapis.com/auth/sqlservice.login"
)

// Each source gives a token for an hour, and a new one before its end; while the
// source is away, the old one serves.
func TestTokenSources(t *testing.T) {
	for name, tt := range map[string]struct {
		use   func(*cloud.Cloud, *testing.T)
		ask   func(context.Context, string) (Token, error)
		scope string
	}{
		"workload identity": {(*cloud.Cloud).WorkloadIdentity, askAzure, azureScope},
		"managed identity":  {(*cloud.Cloud).ManagedIdentity, askAzure, azureScope},
		"an app's identity": {(*cloud.Cloud).AppIdentity, askAzure, azureScope},
		"service account":   {(*cloud.Cloud).ServiceAccount, askGoogle, googleScope},
		"external account":  {(*cloud.Cloud).ExternalAccount, askGoogle, googleScope},
	} {
		t.Run(name, func(t *testing.T) {
			c, clock := cloud.New(t), newClock()
			tt.use(c, t)
			c.Live(time.Hour, clock.now)
			kept := newTokens(tt.ask, clock.now)
			first := must.Get(kept.get(t.Context(), tt.scope, ""))(t)
			if left := first.Ends.Sub(clock.now()); !c.Valid(first.Value) || left < 59*time.Minute || left > 61*time.Minute {
				t.Fatalf("got a token for %s", left)
			}
			c.Rotate(t)
			asked := c.Asked()
			clock.add(54 * time.Minute)
			if again := must.Get(kept.get(t.Context(), tt.scope, ""))(t); again != first || c.Asked() != asked {
				t.Error("asked again before the time")
			}
			clock.add(2 * time.Minute)
			c.Answer(http.StatusTooManyRequests)
			if again := must.Get(kept.get(t.Context(), tt.scope, ""))(t); again != first {
				t.Error("the token was given up before its end")
			}
			clock.add(answerTimeout)
			c.Answer(0)
			second := must.Get(kept.get(t.Context(), tt.scope, ""))(t)
			if second.Value == first.Value || !c.Valid(second.Value) {
				t.Error("the token was not replaced before its end")
			}
			clock.add(time.Hour)
			c.Answer(http.StatusForbidden)
			_, err := kept.get(t.Context(), tt.scope, "")
			if err == nil || failure.ClassOf(err) != failure.Transient || failure.RemedyOf(err) == "" {
				t.Errorf("error = %v, remedy %q", err, failure.RemedyOf(err))
			}
		})
	}
}

// Two scopes have a token each.
func TestTokensOfTwoScopes(t *testing.T) {
	cloud.New(t).ServiceAccount(t)
	a, b := must.Get(Google(t.Context(), "a"))(t), must.Get(Google(t.Context(), "b"))(t)
	if again := must.Get(Google(t.Context(), "a"))(t); a == b || again != a {
		t.Error("the scopes share a token, or keep none")
	}
}

func TestTokenRefusals(t *testing.T) {
	c := cloud.New(t)
	c.WorkloadIdentity(t)
	t.Setenv("AZURE_CLIENT_ID", "another")
	_, err := Azure(t.Context(), azureScope)
	must.Contain(t, err.Error(), "identity another", "400", "AADSTS700016")
	must.Contain(t, failure.RemedyOf(err), "federated credential")
	t.Setenv("AZURE_TENANT_ID", "")
	_, err = Azure(t.Context(), azureScope)
	must.Contain(t, err.Error(), "AZURE_TENANT_ID")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere")
	_, err = Google(t.Context(), googleScope)
	must.Contain(t, err.Error(), "/nowhere")
}

// The token is the one of Amazon's own library (feature/rds/auth v1.7.12), which
// was run with these values.
func TestRDSToken(t *testing.T) {
	at := time.Date(2026, 11, 29, 7, 0, 0, 0, time.UTC)
	c := AWSCredentials{AccessKey: "AKID", SecretKey: "SECRET", SessionToken: "SE/SS+ION=="}
	got := must.Get(rdsToken(t.Context(), c, "db.abc.eu-central-1.rds.amazonaws.com:5432", "eu-central-1", "cdc user", at))(t)
	const want = "db.abc.eu-central-1.rds.amazonaws.com:5432?Action=connect&DBUser=cdc%20user&X-Amz-Algorithm=AWS4-HMAC-SHA256" +
		"&X-Amz-Credential=AKID%2F20261129%2Feu-central-1%2Frds-db%2Faws4_request&X-Amz-Date=20261129T070000Z&X-Amz-Expires=900" +
		"&X-Amz-Security-Token=SE%2FSS%2BION%3D%3D&X-Amz-SignedHeaders=host&X-Amz-Signature=3f66bf4452de0a87fe5bb23d9235986d93f7bc4507c82816f7dbcf3e298b59e6"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestRDSRegion(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	for endpoint, want := range map[string]string{
		"db.abc.eu-central-1.rds.amazonaws.com:5432":    "eu-central-1",
		"db.abc.cn-north-1.rds.amazonaws.com.cn:5433":   "cn-north-1",
		"p.proxy-abc.us-gov-west-1.rds.amazonaws.com:1": "us-gov-west-1",
		"db.internal:5432":                 "",
		"rds.amazonaws.com.evil.test:5432": "",
	} {
		got, err := rdsRegion(endpoint)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", endpoint, got, err)
		}
	}
	t.Setenv("AWS_DEFAULT_REGION", "eu-west-3")
	if got := must.Get(rdsRegion("db.internal:5432"))(t); got != "eu-west-3" {
		t.Errorf("got %q", got)
	}
}
