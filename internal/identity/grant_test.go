package identity

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// A token is kept as long as its end says, for all connections of a client.
func TestGrantIsKept(t *testing.T) {
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
			_, _ = fmt.Fprintf(w, `{"access_token":"token-%d","expires_in":%s}`, n, expires)
		}))
		for range 2 {
			g := Grant{URL: server.URL, ClientID: "cdc", ClientSecret: "a/b", Scopes: []string{"kafka", "write"}}
			token, err := g.Token(t.Context())
			if err != nil || token.Value != fmt.Sprintf("token-%d", n) {
				t.Errorf("got %q, %v", token.Value, err)
			}
		}
		if n != asked {
			t.Errorf("expires in %s s: asked %d times, want %d", expires, n, asked)
		}
		server.Close()
	}
}

// A new secret, or another scope, gets another token.
func TestGrantsOfOthers(t *testing.T) {
	n := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n++
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"access_token":"token-%d","expires_in":3600}`, n)
	}))
	defer server.Close()
	for i, g := range []Grant{
		{URL: server.URL, ClientID: "a", ClientSecret: "s"}, {URL: server.URL, ClientID: "a", ClientSecret: "new"},
		{URL: server.URL, ClientID: "b", ClientSecret: "new"}, {URL: server.URL, ClientID: "b", ClientSecret: "new", Scopes: []string{"x"}},
	} {
		if token := must.Get(g.Token(t.Context()))(t); token.Value != fmt.Sprintf("token-%d", i+1) {
			t.Errorf("%v: %s", g, token.Value)
		}
	}
}

// An endpoint that is away leaves the token in use until its end, and holds few connections
// back. A refused token is dropped.
func TestGrantWithoutItsEndpoint(t *testing.T) {
	clock, n, down := newClock(), 0, false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n++; down {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"access_token":"token-%d","expires_in":60}`, n)
	}))
	defer server.Close()
	g := Grant{URL: server.URL, ClientID: "away", ClientSecret: "s"}
	k := newKept(func(ctx context.Context) (Token, time.Time, error) {
		token, _, err := g.ask(ctx)
		return token, clock.now().Add(time.Minute), err
	}, clock.now)
	grants.by[g.URL+"\x00"+g.ClientID] = grantTokens{"s", k}
	first := must.Get(g.Token(t.Context()))(t)
	down = true
	clock.add(40 * time.Second)
	for range 10 {
		if again := must.Get(g.Token(t.Context()))(t); again.Value != first.Value {
			t.Error("the token was given up before its end")
		}
		clock.add(400 * time.Millisecond)
	}
	if n != 2 {
		t.Errorf("the endpoint was asked %d times, want once in four seconds", n-1)
	}
	clock.add(20 * time.Second)
	if _, err := g.Token(t.Context()); failure.ClassOf(err) != failure.Transient || failure.RemedyOf(err) == "" {
		t.Errorf("got %v", err)
	}
	down = false
	clock.add(failureCounts)
	second := must.Get(g.Token(t.Context()))(t)
	first.Refused() // long ago
	if again := must.Get(g.Token(t.Context()))(t); again.Value != second.Value {
		t.Error("a former token's refusal dropped the present one")
	}
	second.Refused()
	if again := must.Get(g.Token(t.Context()))(t); again.Value == second.Value {
		t.Error("a refused token is used again")
	}
}

func TestGrantRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		body   string
		class  failure.Class
	}{
		"wrong secret":    {http.StatusUnauthorized, `{"error":"invalid_client"}`, failure.Config},
		"not an endpoint": {http.StatusOK, `<html>`, failure.Transient},
		"elsewhere":       {http.StatusFound, ``, failure.Config},
		"overloaded":      {http.StatusTooManyRequests, ``, failure.Transient},
		"broken":          {http.StatusBadGateway, ``, failure.Transient},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.status)
				_, _ = fmt.Fprint(w, tc.body)
			}))
			defer server.Close()
			wantRefusal(t, server.URL, tc.class)
		})
	}
	wantRefusal(t, "http://127.0.0.1:1", failure.Transient)
}

// wantRefusal wants an error with the client and the endpoint, without its secrets.
func wantRefusal(t *testing.T, endpoint string, class failure.Class) {
	t.Helper()
	g := Grant{URL: strings.Replace(endpoint, "://", "://user:hunter2@", 1) + "/token?key=sesame", ClientID: "cdc", ClientSecret: "s3cret"}
	_, err := g.Token(t.Context())
	if err == nil || failure.ClassOf(err) != class || failure.RemedyOf(err) == "" {
		t.Fatalf("got %v of class %d, remedy %q", err, failure.ClassOf(err), failure.RemedyOf(err))
	}
	must.Contain(t, err.Error(), "client cdc", "/token")
	for _, secret := range []string{"hunter2", "sesame", "s3cret"} {
		if strings.Contains(err.Error()+failure.RemedyOf(err), secret) {
			t.Errorf("shows %q: %v", secret, err)
		}
	}
}
