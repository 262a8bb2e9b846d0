package cloud

import (
	"net/http"
	"strings"
	"testing"
)

// WorkloadIdentity makes the process a pod with Entra's workload identity.
func (c *Cloud) WorkloadIdentity(t *testing.T) {
	t.Setenv("AZURE_FEDERATED_TOKEN_FILE", c.tokenFile())
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
		c.accessToken(w)
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
