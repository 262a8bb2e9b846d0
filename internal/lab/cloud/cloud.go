// Package cloud has stand-ins for the clouds' sources of identities, for tests:
// Amazon's STS, IMDSv2 and container endpoint, the token endpoint and metadata
// service of Microsoft Entra, Google's metadata server, an issuer of OAuth tokens.
//
// Invariants:
//
//  1. Each refuses as the cloud does: a request without the header, a foreign
//     token, another version of the protocol.
//  2. Issued credentials and tokens are new, and end (see Live).
//
// Non-goals: real accounts; other services of the clouds.
package cloud

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// The workload known to the stand-ins.
const (
	RoleARN = "arn:aws:iam::123456789012:role/cdc"
	Region  = "eu-central-1"
	Tenant  = "11111111-2222-3333-4444-555555555555"
	Client  = "66666666-7777-8888-9999-000000000000"
	Subject = "cdc"
)

// Cloud is all of the sources, on a single port. Several goroutines may use it.
type Cloud struct {
	URL string

	dir string

	mu       sync.Mutex
	lifetime time.Duration
	now      func() time.Time
	status   int           // of every answer, unless 0
	silence  chan struct{} // requests wait for its end; nil: none
	asked    int
	identity string          // the workload's own token, in a file
	keys     map[string]Keys // by access key
	tokens   map[string]time.Time
}

// Keys are issued credentials of Amazon.
type Keys struct {
	AccessKey, Secret, Session string
	Ends                       time.Time
}

// New starts the sources, until the test's end. Credentials and tokens live for
// a minute. The environment names no source.
func New(t *testing.T) *Cloud {
	c := &Cloud{dir: t.TempDir(), lifetime: time.Minute, now: time.Now, keys: map[string]Keys{}, tokens: map[string]time.Time{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /sts/", c.sts)
	mux.HandleFunc("PUT /latest/api/token", c.imdsToken)
	mux.HandleFunc("GET /latest/meta-data/iam/security-credentials/", c.imds)
	mux.HandleFunc("GET /v1/credentials", c.container)
	mux.HandleFunc("POST /"+Tenant+"/oauth2/v2.0/token", c.entra)
	mux.HandleFunc("GET /metadata/identity/oauth2/token", c.azureIMDS)
	mux.HandleFunc("GET /msi/token", c.app)
	mux.HandleFunc("POST /sts/v1/token", c.exchange)
	mux.HandleFunc("POST "+tokenPath, c.grant)
	mux.HandleFunc("GET /computeMetadata/v1/instance/service-accounts/default/token", c.google)
	mux.HandleFunc("GET /computeMetadata/v1/instance/service-accounts/default/email", c.googleAccount)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.asked++
		status, silence := c.status, c.silence
		c.mu.Unlock()
		if silence != nil {
			select {
			case <-silence:
			case <-r.Context().Done():
				return
			}
		}
		if status != 0 {
			http.Error(w, "the source is down", status)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { c.Hang(false) })
	c.URL = server.URL
	for _, name := range variables {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", c.dir) // no files of a user
	t.Setenv("AWS_REGION", Region)
	c.Rotate(t)
	return c
}

// variables choose a source.
var variables = []string{
	"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE",
	"AWS_ENDPOINT_URL_STS", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
	"AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE",
	"AWS_CONFIG_FILE", "AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_DEFAULT_REGION",
	"AZURE_FEDERATED_TOKEN_FILE", "AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_AUTHORITY_HOST", "IDENTITY_ENDPOINT", "IDENTITY_HEADER",
	"AZURE_POD_IDENTITY_AUTHORITY_HOST", "GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST", "GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL",
}

// Rotate replaces the workload's own token in the file, as Kubernetes does. The
// old token is refused from now on.
func (c *Cloud) Rotate(t testing.TB) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.identity = fmt.Sprintf("workload-%d", time.Now().UnixNano())
	must.OK(t, os.WriteFile(c.TokenFile(), []byte(c.identity), 0o600))
}

// TokenFile has the workload's own token.
func (c *Cloud) TokenFile() string { return filepath.Join(c.dir, "token") }

// Live sets the life of credentials and tokens, and the clock; nil: the time.
func (c *Cloud) Live(lifetime time.Duration, now func() time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lifetime = lifetime
	if now != nil {
		c.now = now
	}
}

// Answer sets the status of every answer; 0 ends that.
func (c *Cloud) Answer(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status
}

// Hang leaves every request without an answer until Hang(false).
func (c *Cloud) Hang(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case on && c.silence == nil:
		c.silence = make(chan struct{})
	case !on && c.silence != nil:
		close(c.silence)
		c.silence = nil
	}
}

// Issued counts credentials and tokens.
func (c *Cloud) Issued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.tokens)
}

// Asked counts the requests.
func (c *Cloud) Asked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// issue makes new credentials.
func (c *Cloud) issue() Keys {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.tokens) + 1
	k := Keys{fmt.Sprintf("ASIA%012d", n), fmt.Sprintf("secret/%d+", n), fmt.Sprintf("session/%d+==", n), c.now().Add(c.lifetime)}
	c.keys[k.AccessKey], c.tokens[k.Session] = k, k.Ends
	return k
}

// token makes a new access token, without a signature (RFC 7519 §6), for Subject.
func (c *Cloud) token() (text string, lifetime time.Duration, ends time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	begins := c.now()
	ends = begins.Add(c.lifetime)
	part := func(claims map[string]any) string {
		text, _ := json.Marshal(claims) // of strings and numbers
		return base64.RawURLEncoding.EncodeToString(text)
	}
	text = part(map[string]any{"alg": "none"}) + "." +
		part(map[string]any{"sub": Subject, "iat": begins.Unix(), "exp": ends.Unix(), "jti": strconv.Itoa(len(c.tokens) + 1)}) + "."
	c.tokens[text] = ends
	return text, c.lifetime, ends
}

// holder tells whether a token is the workload's.
func (c *Cloud) holder(token string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return token == c.identity
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// accessToken answers as OAuth does.
func (c *Cloud) accessToken(w http.ResponseWriter) {
	text, lifetime, _ := c.token()
	reply(w, http.StatusOK, map[string]any{"access_token": text, "token_type": "Bearer", "expires_in": int(lifetime.Seconds())})
}

// Valid tells whether a token was issued and has not ended.
func (c *Cloud) Valid(token string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now().Before(c.tokens[token])
}

// Keys returns the credentials of an access key, unless unknown or ended.
func (c *Cloud) Keys(accessKey string) (Keys, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.keys[accessKey]
	return k, ok && c.now().Before(k.Ends)
}

func (c *Cloud) time() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

// Environ is the environment of a program of the workload.
func (c *Cloud) Environ() (list []string) {
	for _, name := range append(variables, "AWS_REGION") {
		if value := os.Getenv(name); value != "" {
			list = append(list, name+"="+value)
		}
	}
	return list
}
