package sink

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/cloud"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

const msk = "b-1.cdc.abcdef.c2.kafka.eu-central-1.amazonaws.com"

// firstMessage is the first of a login.
func firstMessage(t *testing.T, s SASL, host string) string {
	t.Helper()
	_, first, err := mechanism(s).Authenticate(t.Context(), host)
	must.OK(t, err)
	return string(first)
}

// Each of Amazon's sources signs as MSK checks it, and later logins have new credentials.
func TestMSKChecksTheSignature(t *testing.T) {
	for name, use := range map[string]func(*cloud.Cloud, *testing.T){
		"web identity": (*cloud.Cloud).WebIdentity, "pod identity": (*cloud.Cloud).PodIdentity, "instance": (*cloud.Cloud).Instance,
	} {
		t.Run(name, func(t *testing.T) {
			c := cloud.New(t)
			use(c, t)
			c.Live(2*time.Second, nil)
			login := func() string {
				var payload map[string]string
				must.OK(t, json.Unmarshal([]byte(firstMessage(t, SASL{Mechanism: "AWS_MSK_IAM"}, msk+":9098")), &payload))
				key, _, _ := strings.Cut(payload["x-amz-credential"], "/")
				issued, ok := c.Keys(key)
				if !ok || payload["x-amz-security-token"] != issued.Session {
					t.Errorf("the credentials have ended, or are a stranger's: %v", payload)
				}
				if want := signature(payload, issued.Secret); payload["x-amz-signature"] != want {
					t.Errorf("signature %s, want %s", payload["x-amz-signature"], want)
				}
				return key
			}
			first := login()
			must.OK(t, await.Ready(t.Context(), nil, func(context.Context) error {
				if login() == first {
					return errors.New("no new credentials yet")
				}
				return nil
			}))
		})
	}
}

// signature is that of AWS's Signature Version 4 for a query.
func signature(payload map[string]string, secret string) string {
	query := url.Values{"Action": {payload["action"]}}
	for header, name := range map[string]string{
		"x-amz-algorithm": "X-Amz-Algorithm", "x-amz-credential": "X-Amz-Credential", "x-amz-date": "X-Amz-Date",
		"x-amz-expires": "X-Amz-Expires", "x-amz-signedheaders": "X-Amz-SignedHeaders", "x-amz-security-token": "X-Amz-Security-Token",
	} {
		query.Set(name, payload[header])
	}
	sum := func(text string) string { s := sha256.Sum256([]byte(text)); return hex.EncodeToString(s[:]) }
	_, scope, _ := strings.Cut(payload["x-amz-credential"], "/")
	request := strings.Join([]string{"GET", "/", strings.ReplaceAll(query.Encode(), "+", "%20"), "host:" + payload["host"], "", "host", sum("")}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range append(strings.Split(scope, "/"), strings.Join([]string{"AWS4-HMAC-SHA256", payload["x-amz-date"], scope, sum(request)}, "\n")) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	return hex.EncodeToString(key)
}

// A source of credentials without an answer is as a broker that is away.
func TestMSKWithoutItsSource(t *testing.T) {
	c := cloud.New(t)
	c.WebIdentity(t)
	c.Answer(503)
	_, _, err := mechanism(SASL{Mechanism: "AWS_MSK_IAM"}).Authenticate(t.Context(), msk+":9098")
	if failure.ClassOf(err) != failure.Transient || failure.RemedyOf(err) == "" || !strings.Contains(err.Error(), cloud.RoleARN) {
		t.Errorf("got %v, remedy %q", err, failure.RemedyOf(err))
	}
}

func TestEventHubsToken(t *testing.T) {
	c := cloud.New(t)
	c.WorkloadIdentity(t)
	first := firstMessage(t, SASL{Mechanism: "OAUTHBEARER", Identity: identityAzure}, "ns.servicebus.windows.net:9093")
	if token := strings.Trim(strings.TrimPrefix(first, "n,,\x01auth=Bearer "), "\x01"); !c.Valid(token) {
		t.Errorf("sent %q", first)
	}
	if scope := (SASL{}).azureScope("ns.servicebus.windows.net:9093"); scope != "https://ns.servicebus.windows.net/.default" {
		t.Error(scope)
	}
	if scope := (SASL{Scopes: []string{"https://x/.default"}}).azureScope("ns:1"); scope != "https://x/.default" {
		t.Error(scope)
	}
}

// Google's brokers take an access token behind claims without a signature.
func TestManagedKafkaToken(t *testing.T) {
	c := cloud.New(t)
	c.ServiceAccount(t)
	first := firstMessage(t, SASL{Mechanism: "OAUTHBEARER", Identity: identityGoogle}, "bootstrap.c.europe-west1.managedkafka.p.cloud.goog:9092")
	parts := strings.Split(strings.Trim(strings.TrimPrefix(first, "n,,\x01auth=Bearer "), "\x01"), ".")
	if len(parts) != 3 {
		t.Fatalf("sent %q", first)
	}
	var texts []string
	for _, part := range parts {
		texts = append(texts, string(must.Get(base64.RawURLEncoding.DecodeString(part))(t)))
	}
	var claims map[string]any
	must.OK(t, json.Unmarshal([]byte(texts[1]), &claims))
	if texts[0] != `{"alg":"GOOG_OAUTH2_TOKEN","typ":"JWT"}` || !c.Valid(texts[2]) || claims["sub"] != cloud.Account || claims["scope"] != "kafka" || claims["iss"] != "Google" {
		t.Errorf("sent %q", texts)
	}
	if end := int64(claims["exp"].(float64)); end <= time.Now().Unix() || end > time.Now().Add(2*time.Minute).Unix() {
		t.Errorf("the token ends at %d", end)
	}
}
