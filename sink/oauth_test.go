package sink

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

func TestTokenIsKeptUntilNearlyExpired(t *testing.T) {
	for expires, asked := range map[string]int{
		`3600`: 1, `"3600"`: 1, `1000000000000`: 1, `0`: 2, `-1`: 2, `null`: 2,
	} {
		n := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n++
			user, pass, _ := r.BasicAuth()
			if user != "cdc" || pass != "a%2Fb" || r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "kafka write" {
				t.Errorf("asked as %s:%s with %v", user, pass, r.Form)
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"access_token":"token-%d","expires_in":%s}`, n, expires)
		}))
		s := &tokenSource{cfg: SASL{TokenURL: server.URL, ClientID: "cdc", ClientSecret: "a/b", Scopes: []string{"kafka", "write"}}}
		for range 2 {
			token, err := s.token(t.Context())
			if err != nil || token != fmt.Sprintf("token-%d", n) {
				t.Errorf("got %q, %v", token, err)
			}
		}
		if n != asked {
			t.Errorf("expires in %s s: asked %d times, want %d", expires, n, asked)
		}
		server.Close()
	}
}

func TestTokenRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		body   string
		class  failure.Class
	}{
		"wrong secret":    {http.StatusUnauthorized, `{"error":"invalid_client"}`, failure.Config},
		"not an endpoint": {http.StatusOK, `<html>`, failure.Transient},
		"overloaded":      {http.StatusTooManyRequests, ``, failure.Transient},
		"broken":          {http.StatusBadGateway, ``, failure.Transient},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.status)
				fmt.Fprint(w, tc.body)
			}))
			defer server.Close()
			_, err := (&tokenSource{cfg: SASL{TokenURL: server.URL}}).token(t.Context())
			if err == nil || failure.ClassOf(err) != tc.class {
				t.Errorf("got %v of class %d", err, failure.ClassOf(err))
			}
		})
	}
}

func TestMechanism(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	for name, tc := range map[string]struct {
		cfg SASL
		ok  bool
	}{
		"none":           {SASL{}, true},
		"PLAIN":          {SASL{Mechanism: "PLAIN"}, true},
		"SCRAM-SHA-256":  {SASL{Mechanism: "SCRAM-SHA-256"}, true},
		"SCRAM-SHA-512":  {SASL{Mechanism: "SCRAM-SHA-512"}, true},
		"OAuth token":    {SASL{Mechanism: "OAUTHBEARER", Token: "t"}, true},
		"OAuth endpoint": {SASL{Mechanism: "OAUTHBEARER", TokenURL: "http://idp"}, true},
		"AWS keys":       {SASL{Mechanism: "AWS_MSK_IAM", AccessKey: "a", SecretKey: "s"}, true},
		"AWS nothing":    {SASL{Mechanism: "AWS_MSK_IAM"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := mechanism(tc.cfg)
			if tc.ok != (err == nil) || !tc.ok && failure.ClassOf(err) != failure.Config {
				t.Fatalf("got %v", err)
			}
			if m != nil && m.Name() != tc.cfg.Mechanism {
				t.Errorf("mechanism %s", m.Name())
			}
		})
	}
}
