package cloud

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// WorkloadIdentity makes the process a pod with Entra's workload identity.
func (c *Cloud) WorkloadIdentity(t *testing.T) {
	t.Setenv("AZURE_FEDERATED_TOKEN_FILE", c.TokenFile())
	t.Setenv("AZURE_CLIENT_ID", Client)
	t.Setenv("AZURE_TENANT_ID", Tenant)
	t.Setenv("AZURE_AUTHORITY_HOST", c.URL+"/")
}

// ManagedIdentity makes the process a program on a machine with an identity.
func (c *Cloud) ManagedIdentity(t *testing.T) { t.Setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", c.URL) }

// ServiceAccount makes the process a program on a machine of Google, or a pod of
// GKE.
func (c *Cloud) ServiceAccount(t *testing.T) {
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(c.URL, "http://"))
}

const assertion = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

func (c *Cloud) entra(w http.ResponseWriter, r *http.Request) {
	fail := func(code, text string) {
		reply(w, http.StatusBadRequest, map[string]any{"error": code, "error_description": text})
	}
	switch {
	case r.FormValue("grant_type") != "client_credentials" || r.FormValue("client_assertion_type") != assertion:
		fail("invalid_request", "AADSTS900144: the request is incomplete")
	case r.FormValue("client_id") != Client:
		fail("unauthorized_client", "AADSTS700016: application not found in the directory")
	case !c.holder(r.FormValue("client_assertion")):
		fail("invalid_client", "AADSTS700211: no matching federated identity record found")
	case !strings.HasSuffix(r.FormValue("scope"), "/.default"):
		fail("invalid_scope", "AADSTS1002012: the scope must end in /.default")
	default:
		c.accessToken(w)
	}
}

func (c *Cloud) azureIMDS(w http.ResponseWriter, r *http.Request) {
	switch q := r.URL.Query(); {
	case r.Header.Get("Metadata") != "true":
		reply(w, http.StatusBadRequest, map[string]any{"error": "bad_request_102", "error_description": "Required metadata header not specified"})
	case q.Get("api-version") == "" || q.Get("resource") == "" || strings.HasSuffix(q.Get("resource"), "/.default"):
		reply(w, http.StatusBadRequest, map[string]any{"error": "invalid_request", "error_description": "Required query variable is missing"})
	default:
		text, lifetime, ends := c.token() // numbers are text here
		reply(w, http.StatusOK, map[string]any{"access_token": text, "token_type": "Bearer",
			"expires_in": strconv.Itoa(int(lifetime.Seconds())), "expires_on": strconv.FormatInt(ends.Unix(), 10), "resource": q.Get("resource")})
	}
}

func (c *Cloud) google(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Metadata-Flavor", "Google")
	if r.Header.Get("Metadata-Flavor") != "Google" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	c.accessToken(w)
}

// AppIdentity makes the process a program of App Service or Container Apps.
func (c *Cloud) AppIdentity(t *testing.T) {
	t.Setenv("IDENTITY_ENDPOINT", c.URL+"/msi/token")
	t.Setenv("IDENTITY_HEADER", appHeader)
}

const appHeader = "of-the-app"

func (c *Cloud) app(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-IDENTITY-HEADER") != appHeader || r.URL.Query().Get("api-version") != "2019-08-01" || r.URL.Query().Get("resource") == "" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	text, _, ends := c.token()
	reply(w, http.StatusOK, map[string]any{"access_token": text, "token_type": "Bearer", "expires_on": strconv.FormatInt(ends.Unix(), 10)})
}

// ExternalAccount makes the process a workload outside of Google, with a token
// of another provider (Workload Identity Federation).
func (c *Cloud) ExternalAccount(t *testing.T) {
	file := filepath.Join(c.dir, "external.json")
	text, err := json.Marshal(map[string]any{ //nolint:gosec // no credentials of anybody
		"type": "external_account", "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
		"subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": c.URL + "/sts/v1/token",
		"credential_source": map[string]any{"file": c.TokenFile()},
	})
	must.OK(t, err)
	must.OK(t, os.WriteFile(file, text, 0o600))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
}

// exchange answers RFC 8693.
func (c *Cloud) exchange(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("grant_type") != "urn:ietf:params:oauth:grant-type:token-exchange" || !c.holder(r.FormValue("subject_token")) {
		reply(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant", "error_description": "the subject token is not the workload's"})
		return
	}
	c.accessToken(w)
}

// Account is the email of Google's service account.
const Account = "cdc@project.iam.gserviceaccount.com"

func (*Cloud) googleAccount(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Metadata-Flavor") != "Google" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	_, _ = w.Write([]byte(Account + "\n"))
}

const tokenPath = "/oauth/token" //nolint:gosec // a path

// TokenURL is the endpoint of the client credentials grant, for the client Subject with the
// workload's own token as its secret.
func (c *Cloud) TokenURL() string { return c.URL + tokenPath }

// grant answers RFC 6749 §4.4.
func (c *Cloud) grant(w http.ResponseWriter, r *http.Request) {
	id, secret, _ := r.BasicAuth()
	if id != Subject || !c.holder(secret) || r.FormValue("grant_type") != "client_credentials" {
		reply(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client", "error_description": "the secret is not the client's"})
		return
	}
	c.accessToken(w)
}
